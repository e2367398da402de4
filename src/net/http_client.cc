#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <deque>

#include "base/clock.h"

namespace lathe::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr size_t kHeaderBytes = size_t{64} << 10;

/// One request on a connection of its own: resolve, connect, write, read piece by piece.
class Exchange {
 public:
  Exchange(asio::io_context& context, const HttpUrl& url, const HttpRequest& request, const HttpLimits& limits)
      : url_(url), target_(url.path + request.target), limits_(limits), resolver_(context), stream_(context) {
    message_.version(11);
    message_.method(request.body.empty() ? http::verb::get : http::verb::post);
    message_.target(target_);
    message_.set(http::field::host, url.authority);
    message_.set(http::field::user_agent, "lathe");
    message_.set(http::field::connection, "close");
    if (!request.body.empty()) message_.set(http::field::content_type, "application/json");
    message_.body() = request.body;
    message_.prepare_payload();
    parser_.body_limit(limits.body_bytes);
    parser_.header_limit(kHeaderBytes);
  }

  void start() {
    stream_.expires_after(std::chrono::seconds(limits_.seconds));
    resolver_.async_resolve(url_.host, url_.port, [this](error_code error, const asio::ip::tcp::resolver::results_type& found) {
      if (error) return fail("find", error);
      stream_.async_connect(found, [this](error_code failed, const asio::ip::tcp::endpoint&) {
        if (failed) return fail("reach", failed);
        write();
      });
    });
  }

  Result<HttpResponse> result() {
    if (!error_.message.empty()) return tl::unexpected<Error>(error_);
    response_.status = static_cast<int>(parser_.get().result_int());
    response_.body = std::move(parser_.get().body());
    return std::move(response_);
  }

 private:
  void write() {
    http::async_write(stream_, message_, [this](error_code error, size_t) {
      if (error) return fail("write to", error);
      read();
    });
  }

  void read() {
    http::async_read_some(stream_, buffer_, parser_, [this](error_code error, size_t) {
      if (error) return fail("read from", error);
      const size_t bytes = parser_.get().body().size();
      const bool grew = response_.arrivals.empty() ? bytes > 0 : bytes > response_.arrivals.back().bytes;
      if (grew) response_.arrivals.push_back({.ns = base::now_ns(), .bytes = bytes});
      if (parser_.is_done()) {
        stream_.close();
        return;
      }
      read();
    });
  }

  void fail(const char* act, error_code error) {
    Code code = Code::kUnavailable;
    if (error == beast::error::timeout) {
      code = Code::kDeadlineExceeded;
    } else if (error == http::error::body_limit || error == http::error::header_limit) {
      code = Code::kResourceExhausted;
    } else if (error.category() == http::make_error_code(http::error::bad_version).category() && error != http::error::end_of_stream) {
      code = Code::kDataLoss;
    }
    error_ = Error{.code = code, .message = fmt::format("cannot {} {} for {}: {}", act, url_.authority, target_, base::one_line(error.message()))};
    stream_.close();
  }

  const HttpUrl& url_;
  std::string target_;
  HttpLimits limits_;
  asio::ip::tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> message_;
  http::response_parser<http::string_body> parser_;
  HttpResponse response_;
  Error error_;
};

Result<void> check_port(const std::string& text, const std::string& port) {
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  const int number = digits ? std::stoi(port) : 0;
  if (number >= 1 && number <= 65535) return {};
  return err(Code::kInvalidArgument, "URL '{}': the port is '{}', expected 1 to 65535", base::one_line(text), base::one_line(port));
}

}  // namespace

Result<HttpUrl> parse_http_url(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!plain || !text.starts_with(kScheme))
    return err(Code::kInvalidArgument, "URL '{}': expected http://HOST[:PORT][/PATH] (https is not spoken)", base::one_line(text));
  const size_t begin = kScheme.size();
  const size_t slash = std::min(text.find('/', begin), text.size());
  HttpUrl url{.host = {}, .port = "80", .path = text.substr(slash), .authority = text.substr(begin, slash - begin)};
  while (url.path.ends_with('/')) url.path.pop_back();
  url.host = url.authority;
  const size_t bracket = url.authority.starts_with('[') ? url.authority.find(']') : 0;
  const size_t colon = bracket == std::string::npos ? bracket : url.authority.find(':', bracket);
  if (colon != std::string::npos) {
    url.port = url.authority.substr(colon + 1);
    url.host = url.authority.substr(0, colon);
    LATHE_TRY_VOID(check_port(text, url.port));
  }
  if (url.host.starts_with('[') && url.host.ends_with(']')) url.host = url.host.substr(1, url.host.size() - 2);
  const bool host = !url.host.empty() && url.host.find_first_of("@?#[]") == std::string::npos && url.path.find_first_of("?#") == std::string::npos;
  if (!host) return err(Code::kInvalidArgument, "URL '{}': expected http://HOST[:PORT][/PATH] without user, query or fragment", text);
  return url;
}

Result<std::vector<HttpResponse>> http_exchange(const HttpUrl& url, std::span<const HttpRequest> requests, const HttpLimits& limits) {
  asio::io_context context(1);
  std::deque<Exchange> exchanges;  // they keep their place: handlers point to them
  for (const HttpRequest& request : requests) exchanges.emplace_back(context, url, request, limits).start();
  context.run();
  std::vector<HttpResponse> responses;
  for (Exchange& exchange : exchanges) {
    LATHE_TRY(responses.emplace_back(), exchange.result());
  }
  return responses;
}

}  // namespace lathe::net
