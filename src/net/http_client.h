#pragma once
// A small HTTP/1.1 client: requests to one host, all at the same time, each with a connection of its own.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace lathe::net {

/// "http://127.0.0.1:8080/v1" in its parts.
struct HttpUrl {
  std::string host;       ///< a name or an address; IPv6 addresses without their brackets
  std::string port;       ///< "80" if none was given
  std::string path;       ///< what stands before every target: "/v1", or empty
  std::string authority;  ///< host and port as a request names them
};

/// Errors: invalid_argument naming the text and what was expected (https is not spoken).
Result<HttpUrl> parse_http_url(const std::string& text);

struct HttpRequest {
  std::string target;  ///< behind the path of the URL: "/health"
  std::string body;    ///< JSON, sent by POST; empty: a GET
};

/// So many bytes of the body had come at that time.
struct HttpArrival {
  int64_t ns = 0;  ///< of the monotonic clock, base/clock.h
  size_t bytes = 0;
};

struct HttpResponse {
  int status = 0;
  std::string body;
  std::vector<HttpArrival> arrivals;  ///< piece by piece, as an answer that is streamed comes
};

struct HttpLimits {
  size_t body_bytes = size_t{16} << 20;
  int64_t seconds = 600;  ///< for all of an exchange
};

/// Sends all requests at once and waits for all answers, which come in the order of the requests, whatever their status.
/// Threads  the calling thread.
/// Errors   unavailable (no such host, no connection, one that broke), deadline_exceeded, resource_exhausted (an answer over the limit), data_loss (no HTTP);
///          each names the address and the target.
Result<std::vector<HttpResponse>> http_exchange(const HttpUrl& url, std::span<const HttpRequest> requests, const HttpLimits& limits = {});

}  // namespace lathe::net
