#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cox {

/// Where the processes of a world find each other.
struct Rendezvous {
  enum class Kind : std::uint8_t {
    None,        ///< a world of one process
    Tcp,         ///< process 0 serves the store at host:port
    Folder,      ///< a folder that all processes share
    TorchStore,  ///< the TCPStore that torchrun serves at host:port
    Pmix,        ///< the PMIx server of the launcher
    Leader,      ///< the leader of the world, at host:port, which takes no part in it; needs a token
  };

  Kind kind = Kind::None;
  std::string host{};      ///< of Tcp, TorchStore and Leader: a name or an address, without brackets
  std::uint16_t port = 0;  ///< of Tcp, TorchStore and Leader
  std::string folder{};    ///< of Folder

  friend bool operator==(const Rendezvous&, const Rendezvous&) = default;
};

/// "tcp://host:port", "file:/path", "torch://host:port", "leader://host:port", "pmix", "none".
[[nodiscard]] std::string to_string(const Rendezvous& rendezvous);

/// Parses "tcp://host:port" (brackets around an IPv6 address), "leader://host:port", "file:path" and "pmix". `source`
/// names the text in errors: "COX_WORLD". Throws ConfigError Malformed.
[[nodiscard]] Rendezvous parse_rendezvous(std::string_view text, std::string_view source);

namespace detail {
/// Whether the host is "localhost" or a loopback address.
[[nodiscard]] bool is_loopback(std::string_view host);
}  // namespace detail

}  // namespace cox
