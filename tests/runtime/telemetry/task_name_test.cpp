#include <coxswain/runtime/trace/task_name.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <string>

using cox::trace::task_name;

TEST_CASE("A task is named by the call and by the function its lambda was written in") {
  CHECK(task_name("cox::detail::PostedTask<cox::HostServer, cox::DeviceThread, "
                  "cox::ComputeClient<cox::HostServer>::launch(cox::Kernel const&, std::vector<int, "
                  "std::allocator<int> >) const::{lambda(cox::HostServer&)#2}>") == "submit ComputeClient::launch");
  CHECK(task_name("cox::detail::BlockingTask<cox::BasicDeviceHandle<S, cox::DeviceThread>::service_body<"
                  "training::step(int)::{lambda(S&)#1}>(training::step(int)::{lambda(S&)#1}&&) const::{lambda()#1}>") ==
        "submit_blocking training::step");
  CHECK(
      task_name("cox::detail::BlockingTask<cox::BasicDeviceHandle<S, cox::DeviceThread>::exclusive<main::{lambda()#3}>("
                "main::{lambda()#3}&&) const::{lambda()#1}>") == "exclusive main");
  CHECK(
      task_name("cox::detail::PostedTask<S, cox::DeviceThread, (anonymous namespace)::load()::{lambda(auto:1&)#1}>") ==
      "submit load");
}

TEST_CASE("A task that is no lambda is named by its type, and the opening of a service by the service") {
  CHECK(task_name("cox::detail::PostedTask<S, cox::DeviceThread, stress::SmallClosure<8> >") ==
        "submit stress::SmallClosure");
  CHECK(task_name("cox::detail::BlockingTask<cox::BasicDeviceHandle<stress::Auditor<int>, "
                  "cox::DeviceThread>::service_body<stress::Question>(stress::Question&&) const::{lambda()#1}>") ==
        "submit_blocking stress::Question");
  CHECK(task_name("cox::detail::BlockingTask<cox::BasicDeviceHandle<cox::HostServer, cox::DeviceThread>::open<"
                  "cox::BasicDeviceHandle<cox::HostServer, cox::DeviceThread>::get(cox::DeviceId)::{lambda()#1}>("
                  "cox::DeviceId, cox::BasicDeviceHandle<cox::HostServer, "
                  "cox::DeviceThread>::get(cox::DeviceId)::{lambda()#1}&&)::{lambda()#1}>") == "open HostServer");
}

TEST_CASE("Any other text is shortened and never refused") {
  CHECK(task_name(typeid(int)) == "int");
  for (const char* odd : {"", "<", ">", "PostedTask<", "PostedTask<,", "::{lambda", "a::{lambda", ")(", "::exclusive<",
                          "::open<", "BasicDeviceHandle<::open<"}) {
    CHECK_NOTHROW(task_name(std::string_view(odd)));
  }
}
