#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

using cox::ConfigError;
using cox::parse_rendezvous;
using cox::Rendezvous;
using cox::detail::is_loopback;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using Kind = cox::Rendezvous::Kind;

TEST_CASE("A rendezvous is an address, a folder or PMIx") {
  CHECK(parse_rendezvous("tcp://node1:2950", "x") == Rendezvous{.kind = Kind::Tcp, .host = "node1", .port = 2950});
  CHECK(parse_rendezvous("tcp://[fe80::1]:1", "x") == Rendezvous{.kind = Kind::Tcp, .host = "fe80::1", .port = 1});
  CHECK(parse_rendezvous("file:/shared/x", "x") == Rendezvous{.kind = Kind::Folder, .folder = "/shared/x"});
  CHECK(parse_rendezvous("file:///shared/x", "x") == Rendezvous{.kind = Kind::Folder, .folder = "/shared/x"});
  CHECK(parse_rendezvous("file:x", "x") == Rendezvous{.kind = Kind::Folder, .folder = "x"});
  CHECK(parse_rendezvous("pmix", "x") == Rendezvous{.kind = Kind::Pmix});
}

TEST_CASE("A rendezvous is written as it is parsed") {
  for (const char* const text : {"tcp://node1:2950", "tcp://[::1]:65535", "file:/shared", "pmix"})
    CHECK(to_string(parse_rendezvous(text, "x")) == text);
  CHECK(to_string(Rendezvous{}) == "none");
  CHECK(to_string(Rendezvous{.kind = Kind::TorchStore, .host = "a", .port = 1}) == "torch://a:1");
}

TEST_CASE("What is no rendezvous is shown with the name of its variable") {
  for (const char* const text : {"", "node1:2950", "tcp://", "tcp://node1", "tcp://node1:", "tcp://:2950",
                                 "tcp://node1:0", "tcp://node1:65536", "tcp://node1:29x", "tcp://node1: 29",
                                 "tcp://::1:29", "tcp://node1:-1", "file:", "file://", "pmix:", "redis://node1:1"}) {
    const auto parse = [&] { (void)parse_rendezvous(text, "environment COX_WORLD"); };
    INFO(text);
    CHECK(kind_of<ConfigError>(parse) == ConfigError::Kind::Malformed);
    CHECK(mentions(message_of(parse), {"COX_WORLD", '"' + std::string(text) + '"', "tcp://HOST:PORT"}));
  }
}

TEST_CASE("Addresses of the loopback device are known") {
  for (const char* const host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) CHECK(is_loopback(host));
  for (const char* const host : {"", "node1", "10.0.0.1", "127.example.org", "::", "fe80::1"})
    CHECK_FALSE(is_loopback(host));
}
