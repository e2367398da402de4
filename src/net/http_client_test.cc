#include "net/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace lathe::net {
namespace {

/// Answers connections on loopback, one thread each, with pieces of text; then closes.
class TestServer {
 public:
  TestServer(int connections, std::vector<std::string> pieces, int pause_ms = 0) : pieces_(std::move(pieces)), pause_ms_(pause_ms) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    requests_.resize(static_cast<size_t>(connections));
    for (int i = 0; i < connections; ++i) threads_.emplace_back([this, i] { serve(requests_[static_cast<size_t>(i)]); });
  }
  ~TestServer() {
    ::shutdown(listener_, SHUT_RDWR);
    wait();
    ::close(listener_);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  HttpUrl url() const { return *parse_http_url(fmt::format("http://127.0.0.1:{}/v1/", port_)); }
  /// What came, after all connections have ended.
  const std::vector<std::string>& requests() {
    wait();
    return requests_;
  }

 private:
  void wait() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  void serve(std::string& request) {
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    char bytes[4096];
    // All requests of these tests end with the header or with a closing brace.
    while (!request.ends_with("\r\n\r\n") && !request.ends_with('}')) {
      const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      request.append(bytes, static_cast<size_t>(n));
      if (request.find("POST") == 0 && request.ends_with("\r\n\r\n")) request += ' ';  // its body is still to come
    }
    for (const std::string& piece : pieces_) {
      if (::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms_));
    }
    ::close(fd);
  }

  int listener_ = -1;
  int port_ = 0;
  std::vector<std::string> pieces_;
  int pause_ms_;
  std::vector<std::string> requests_;
  std::vector<std::thread> threads_;
};

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

Error failure(TestServer& server, const HttpLimits& limits = {}) {
  const HttpRequest request{.target = "/x", .body = {}};
  const auto result = http_exchange(server.url(), {&request, 1}, limits);
  if (result.has_value()) return {.code = Code::kInternal, .message = "it succeeded"};
  return result.error();
}

TEST(HttpUrl, Parts) {
  const auto url = parse_http_url("http://localhost:8080/a/b/");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host + "|" + url->port + "|" + url->path + "|" + url->authority, "localhost|8080|/a/b|localhost:8080");
  const auto address = parse_http_url("http://[::1]:81");
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->host + "|" + address->port + "|" + address->path, "::1|81|");
  EXPECT_EQ(parse_http_url("http://h")->port, "80");
}

TEST(HttpUrl, RefusesOthers) {
  for (const char* text : {"", "localhost:8080", "https://h", "http://", "http://:80", "http://h:", "http://h:0", "http://h:65536",
                           "http://h:99999999999", "http://u@h", "http://h/?a=b", "http://h#f", "http://h/a b", "http://h/\r\nX: y", "http://[::1"}) {
    const auto url = parse_http_url(text);
    ASSERT_FALSE(url.has_value()) << text;
    EXPECT_EQ(url.error().code, Code::kInvalidArgument);
    EXPECT_NE(url.error().message.find("expected"), std::string::npos) << url.error().message;
  }
}

TEST(HttpClient, GetAndPost) {
  TestServer server(2, {kOk});
  const HttpRequest requests[] = {{.target = "/health", .body = {}}, {.target = "/completion", .body = "{\"n\": 1}"}};
  const auto responses = http_exchange(server.url(), requests);
  ASSERT_TRUE(responses.has_value()) << responses.error().message;
  for (const HttpResponse& response : *responses) {
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
  }
  std::string all;
  for (const std::string& request : server.requests()) all += request;
  for (const char* part :
       {"GET /v1/health HTTP/1.1\r\n", "POST /v1/completion HTTP/1.1\r\n", "Content-Length: 8\r\n", "{\"n\": 1}", "Host: 127.0.0.1:"})
    EXPECT_NE(all.find(part), std::string::npos) << all;
}

TEST(HttpClient, StatusIsNoError) {
  TestServer server(1, {"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"});
  const HttpRequest request{.target = "/", .body = {}};
  const auto responses = http_exchange(server.url(), {&request, 1});
  ASSERT_TRUE(responses.has_value());
  EXPECT_EQ(responses->front().status, 503);
}

TEST(HttpClient, SeesPiecesAsTheyCome) {
  TestServer server(1, {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n", "2\r\nde\r\n", "0\r\n\r\n"}, 30);
  const HttpRequest request{.target = "/", .body = {}};
  const auto responses = http_exchange(server.url(), {&request, 1});
  ASSERT_TRUE(responses.has_value()) << responses.error().message;
  const HttpResponse& response = responses->front();
  EXPECT_EQ(response.body, "abcde");
  ASSERT_EQ(response.arrivals.size(), 2U);
  EXPECT_EQ(response.arrivals[0].bytes, 3U);
  EXPECT_EQ(response.arrivals[1].bytes, 5U);
  EXPECT_GT(response.arrivals[1].ns - response.arrivals[0].ns, 10'000'000);
}

TEST(HttpClient, RequestsRunTogether) {
  TestServer server(4, {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "a", "b"}, 100);
  const std::vector<HttpRequest> requests(4, HttpRequest{.target = "/", .body = {}});
  const auto responses = http_exchange(server.url(), requests);
  ASSERT_TRUE(responses.has_value()) << responses.error().message;
  int64_t last_begin = 0, first_end = INT64_MAX;
  for (const HttpResponse& response : *responses) {
    ASSERT_EQ(response.arrivals.size(), 2U);
    last_begin = std::max(last_begin, response.arrivals.front().ns), first_end = std::min(first_end, response.arrivals.back().ns);
  }
  EXPECT_LT(last_begin, first_end);
}

TEST(HttpClient, Failures) {
  const HttpRequest request{.target = "/x", .body = {}};
  const auto nobody = http_exchange(*parse_http_url("http://127.0.0.1:1"), {&request, 1});
  ASSERT_FALSE(nobody.has_value());
  EXPECT_EQ(nobody.error().code, Code::kUnavailable);
  EXPECT_NE(nobody.error().message.find("127.0.0.1:1 for /x"), std::string::npos) << nobody.error().message;

  TestServer other(1, {"220 mail\r\n\r\n"});
  EXPECT_EQ(failure(other).code, Code::kDataLoss);
  TestServer half(1, {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"});
  EXPECT_EQ(failure(half).code, Code::kDataLoss);
  TestServer silent(1, {});
  EXPECT_EQ(failure(silent).code, Code::kUnavailable);
  TestServer large(1, {kOk});
  EXPECT_EQ(failure(large, {.body_bytes = 4}).code, Code::kResourceExhausted);
  TestServer headers(1, {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n"});
  EXPECT_EQ(failure(headers).code, Code::kResourceExhausted);
  TestServer slow(1, {"HTTP/1.1 200 OK\r\n", "Content-Length: 0\r\n\r\n"}, 1500);
  EXPECT_EQ(failure(slow, {.seconds = 1}).code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace lathe::net
