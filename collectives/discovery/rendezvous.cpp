#include <coxswain/collectives/discovery/rendezvous.hpp>

#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <charconv>
#include <system_error>

namespace cox {
namespace {

[[noreturn]] void fail_malformed(std::string_view text, std::string_view source) {
  throw ConfigError(
      ConfigError::Kind::Malformed,
      std::string(source) + " is " + in_quotes(text) +
          ": expected tcp://HOST:PORT with a port from 1 to 65535, file:FOLDER, pmix, or leader://HOST:PORT");
}

Rendezvous parse_address(Rendezvous::Kind kind, std::string_view text, std::string_view source) {
  std::string_view rest = text.substr(text.find("://") + 3);
  Rendezvous found{.kind = kind};
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) fail_malformed(text, source);
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    fail_malformed(text, source);
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), found.port);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || found.port == 0)
    fail_malformed(text, source);
  found.host = host;
  return found;
}

}  // namespace

std::string to_string(const Rendezvous& rendezvous) {
  switch (rendezvous.kind) {
    case Rendezvous::Kind::None: return "none";
    case Rendezvous::Kind::Tcp: return "tcp://" + detail::host_and_port(rendezvous.host, rendezvous.port);
    case Rendezvous::Kind::Folder: return "file:" + rendezvous.folder;
    case Rendezvous::Kind::TorchStore: return "torch://" + detail::host_and_port(rendezvous.host, rendezvous.port);
    case Rendezvous::Kind::Pmix: return "pmix";
    case Rendezvous::Kind::Leader: return "leader://" + detail::host_and_port(rendezvous.host, rendezvous.port);
  }
  return {};
}

Rendezvous parse_rendezvous(std::string_view text, std::string_view source) {
  if (text == "pmix") return {.kind = Rendezvous::Kind::Pmix};
  if (text.starts_with("tcp://")) return parse_address(Rendezvous::Kind::Tcp, text, source);
  if (text.starts_with("leader://")) return parse_address(Rendezvous::Kind::Leader, text, source);
  if (text.starts_with("file:")) {
    std::string_view folder = text.substr(std::string_view("file:").size());
    if (folder.starts_with("//")) folder.remove_prefix(2);  // file:///path
    if (folder.empty()) fail_malformed(text, source);
    return {.kind = Rendezvous::Kind::Folder, .folder = std::string(folder)};
  }
  fail_malformed(text, source);
}

bool detail::is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace cox
