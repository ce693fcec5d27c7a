#include <coxswain/collectives/store/tcp_store.hpp>
#include <coxswain/tests/collectives/store/plain_listener.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>

#include <future>
#include <memory>
#include <optional>

using cox::Store;
using cox::StoreError;
using cox::detail::parse_token;
using cox::detail::TcpStore;
using cox::detail::TcpStoreOptions;
using cox::test::bytes_of;
using cox::test::far;
using cox::test::free_port;
using cox::test::get_text;
using cox::test::kind_of;
using cox::test::later;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::on_threads;
using cox::test::soon;

namespace {

/// Options of process 0 of a world with `processes`.
TcpStoreOptions tcp_options(std::uint16_t processes) {
  return {.host = "127.0.0.1", .port = free_port(), .process = 0, .processes = processes, .run = "run", .restart = 3};
}

TcpStoreOptions of_process(TcpStoreOptions options, std::uint16_t process) {
  options.process = process;
  return options;
}

}  // namespace

TEST_CASE("A store over TCP does what a store does") {
  TcpStoreOptions options = tcp_options(2);
  options.token = parse_token("0123456789abcdef0123456789abcdef").value();
  cox::test::check_store_contract(
      [&](std::uint16_t process) { return std::make_unique<TcpStore>(of_process(options, process), far()); });
}

TEST_CASE("A store over TCP is reached by name and by IPv6") {
  for (const char* const host : {"localhost", "::1"}) {
    INFO(host);
    TcpStoreOptions options = tcp_options(2);
    options.host = host;
    try {
      TcpStore zero(options, far());
      TcpStore one(of_process(options, 1), far());
      zero.set("k", bytes_of("v"), far());
      CHECK(get_text(one, "k") == "v");
    } catch (const StoreError& error) {
      if (!mentions(error.what(), {"::1", "process 0 cannot serve"})) throw;  // a host without IPv6
    }
  }
}

TEST_CASE("Sixteen processes meet in a store over TCP, and it ends when all have closed it") {
  constexpr std::uint16_t processes = 16;
  const TcpStoreOptions options = tcp_options(processes);
  const auto sums = on_threads(processes, [&](std::size_t i) {
    TcpStore store(of_process(options, static_cast<std::uint16_t>(i)), far());
    if (i == 0) store.set("leader", bytes_of("here"), far());
    CHECK(get_text(store, "leader") == "here");
    const auto number = store.add("number", 1, far());
    if (number == processes) store.set("all", {}, far());
    (void)store.get("all", far());
    store.close(far());
    return number;
  });
  std::int64_t sum = 0;
  for (const std::int64_t number : sums) sum += number;
  CHECK(sum == processes * (processes + 1) / 2);
  const auto again = [&] { cox::test::connect_plainly(options.port); };
  CHECK(message_of(again) == "cannot connect");
}

TEST_CASE("Process 0 names the processes that have not closed the store by the deadline") {
  const TcpStoreOptions options = tcp_options(4);
  TcpStore zero(options, far());
  TcpStore two(of_process(options, 2), far());
  auto one = std::make_unique<TcpStore>(of_process(options, 1), far());
  one.reset();  // ends without close()
  two.close(far());
  std::optional<StoreError::Kind> kind;
  std::string text;
  try {
    zero.close(later());
  } catch (const StoreError& error) {
    kind = error.kind();
    text = error.what();
  }
  CHECK(kind == StoreError::Kind::Timeout);
  CHECK(mentions(text, {": 1, 3"}));
}

TEST_CASE("When process 0 ends, the others' calls fail at once and name its address") {
  const TcpStoreOptions options = tcp_options(2);
  auto zero = std::make_unique<TcpStore>(options, far());
  TcpStore one(of_process(options, 1), far());
  auto waiting =
      std::async(std::launch::async, [&] { return kind_of<StoreError>([&] { (void)one.get("absent", far()); }); });
  zero.reset();
  CHECK(waiting.get() == StoreError::Kind::Unreachable);
  const std::string text = message_of([&] { one.set("k", {}, far()); });
  CHECK(mentions(text, {"127.0.0.1:" + std::to_string(options.port)}));
}

TEST_CASE("Another token is refused at once, and says no more than that") {
  TcpStoreOptions options = tcp_options(2);
  options.token = parse_token("0123456789abcdef0123456789abcdef").value();
  const TcpStore zero(options, far());
  TcpStoreOptions other = of_process(options, 1);
  other.run = "another";
  for (const auto& token : {cox::detail::WorldToken{}, parse_token("0123456789abcdef0123456789abcdee").value()}) {
    other.token = token;
    const auto connect = [&] { TcpStore(other, far()); };
    CHECK(kind_of<StoreError>(connect) == StoreError::Kind::Refused);
    CHECK(mentions(message_of(connect), {"the token is wrong"}));
    CHECK_FALSE(mentions(message_of(connect), {"run"}));
  }
}

TEST_CASE("Another run, an earlier restart and a process too many are refused at once") {
  const TcpStoreOptions options = tcp_options(2);
  const TcpStore zero(options, far());
  TcpStoreOptions other = of_process(options, 1);
  other.run = "another";
  const auto connect = [&] { TcpStore(other, far()); };
  CHECK(kind_of<StoreError>(connect) == StoreError::Kind::Refused);
  CHECK(mentions(message_of(connect), {"'run'", "'another'"}));
  other = of_process(options, 1);
  other.restart = 2;
  CHECK(kind_of<StoreError>(connect) == StoreError::Kind::Refused);
  CHECK(mentions(message_of(connect), {"restart 3", "restart 2"}));
  other = of_process(options, 2);
  CHECK(kind_of<StoreError>(connect) == StoreError::Kind::Refused);
  CHECK(mentions(message_of(connect), {"process 2 is not one of 2"}));
}

TEST_CASE("A later restart waits until the store of an earlier one has ended") {
  const TcpStoreOptions options = tcp_options(2);
  auto before = std::make_unique<TcpStore>(options, far());
  before->set("leader", bytes_of("old"), far());
  TcpStoreOptions next = options;
  ++next.restart;
  auto one = std::async(std::launch::async, [&] {
    TcpStore store(of_process(next, 1), far());
    return get_text(store, "leader");
  });
  const auto early = [&] { TcpStore(of_process(next, 1), later()); };
  CHECK(mentions(message_of(early), {"restart 3", "before the deadline"}));
  before.reset();
  TcpStore zero(next, far());
  zero.set("leader", bytes_of("new"), far());
  CHECK(one.get() == "new");
}

TEST_CASE("Process 0 says which address it cannot serve") {
  TcpStoreOptions options = tcp_options(2);
  const cox::test::PlainListener taken(options.port);
  const auto serve = [&] { TcpStore(options, soon()); };
  CHECK(kind_of<StoreError>(serve) == StoreError::Kind::Unreachable);
  CHECK(mentions(message_of(serve), {"process 0", "127.0.0.1:" + std::to_string(options.port), "in use"}));
  options.host = "192.0.2.1";  // of no host: it is for documentation
  CHECK(mentions(message_of(serve), {"process 0", "192.0.2.1"}));
}

TEST_CASE("What is no store is reported as that") {
  const cox::test::PlainListener listener;
  TcpStoreOptions options = tcp_options(2);
  options.port = listener.port();
  auto other = std::async(std::launch::async, [&] {
    const auto connection = listener.accept();
    cox::test::send_all(connection.get(), bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"));
    std::byte end{};
    while (cox::test::receive_all(connection.get(), std::span(&end, 1))) {
    }
  });
  const auto connect = [&] { TcpStore(of_process(options, 1), far()); };
  std::optional<StoreError::Kind> kind = kind_of<StoreError>(connect);
  CHECK(kind == StoreError::Kind::Protocol);
  other.get();
}
