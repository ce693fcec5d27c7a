#include <coxswain/collectives/link/unidentified.hpp>
#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/collectives/link/link_acceptor.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <variant>

using namespace cox::detail::world;
using namespace std::chrono_literals;
using cox::test::RawConnection;

TEST_CASE("The oldest of too many unidentified connections makes room") {
  Unidentified<int> unidentified(2);
  const auto first = std::make_shared<int>(1);
  const auto second = std::make_shared<int>(2);
  const auto third = std::make_shared<int>(3);
  CHECK(unidentified.add(first) == nullptr);
  CHECK(unidentified.add(second) == nullptr);
  CHECK(unidentified.add(third) == first);
  CHECK_FALSE(unidentified.remove(first));
  CHECK(unidentified.remove(second));
  CHECK(unidentified.add(first) == nullptr);
  const auto left = unidentified.take_all();
  CHECK(left.size() == 2);
  CHECK(left.front() == third);
  CHECK(unidentified.add(second) == nullptr);
}

TEST_CASE("Connections that send nothing keep no process out", "[world]") {
  boost::asio::io_context io;
  std::optional<Message> received;
  std::shared_ptr<ControlLink> accepted;
  LinkAcceptor<ControlLink> acceptor(
      io, 1024, 20s,
      [&](const std::shared_ptr<ControlLink>& link, Message first) {
        accepted = link;
        received = std::move(first);
      },
      2);
  acceptor.listen({boost::asio::ip::address_v4::loopback(), 0});
  const auto connect = [&] { return RawConnection("127.0.0.1", acceptor.endpoint().port()); };
  RawConnection oldest = connect();
  RawConnection other = connect();
  RawConnection process = connect();
  process.send(Bye{});
  auto closed = std::async(std::launch::async, [&] { return oldest.is_closed_by_other(); });
  const auto end = std::chrono::steady_clock::now() + 20s;
  while ((!received || closed.wait_for(0s) != std::future_status::ready) && std::chrono::steady_clock::now() < end)
    io.run_for(1ms);
  CHECK(closed.get());
  REQUIRE(received);
  CHECK(std::holds_alternative<Bye>(*received));
  accepted->close();
  acceptor.close();
}
