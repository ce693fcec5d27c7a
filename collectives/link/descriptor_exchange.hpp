#pragma once

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cox::detail::world {

/// Where a DescriptorExchange listens, and the secret that it expects: what the other processes must be sent, as bytes.
struct DescriptorAddress {
  WorldToken name{};
  WorldToken secret{};
};

/// A number that is equal in processes of which each can use a DescriptorExchange of each other one: they run on one
/// host, in one network namespace, as one user. 0 if the system has no such facts.
[[nodiscard]] std::uint64_t descriptor_neighbourhood() noexcept;

/// Passes file descriptors between processes of one host, each of which gives the same ones to all others. They use
/// Unix domain sockets with names of the network namespace (man 7 unix: abstract), so no file is left behind. A process
/// that does not have the secret, or runs as another user, gets nothing. One thread at a time; only the constructor and
/// begin() wait for the system, and no function for another process.
class DescriptorExchange {
 public:
  /// Listens, so that other processes can connect from now on. Throws std::system_error.
  DescriptorExchange();

  [[nodiscard]] const DescriptorAddress& address() const noexcept { return address_; }

  /// Begins to give `own` to the processes that listen at `others`, and to get theirs. These must have been
  /// constructed. Throws std::system_error: also if one of them does not listen any more.
  void begin(std::span<const DescriptorAddress> others, std::vector<FileDescriptor> own);
  /// Continues as far as possible. Returns whether it is done: this process has the descriptors of all others, and they
  /// have its own. Throws std::system_error, std::runtime_error: also if another process has ended its exchange; then
  /// none of its functions may be called again.
  [[nodiscard]] bool advance();
  /// The descriptors of the other processes, in the order of `others`. After advance() has returned true.
  [[nodiscard]] std::vector<std::vector<FileDescriptor>> take() noexcept;

 private:
  // Another process.
  struct Other {
    DescriptorAddress address;
    FileDescriptor link;  // on which it answers
    bool has_request = false;
    bool has_answered = false;
    bool was_answered = false;
  };
  // What a process sends to get the descriptors of another one.
  struct Request {
    WorldToken secret;
    WorldToken name;  // of the process that sends it
  };

  void request(Other& other) const;
  void accept();
  [[nodiscard]] bool answer(int link);
  void receive(Other& other, std::vector<FileDescriptor>& into) const;

  DescriptorAddress address_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> own_;
  std::vector<Other> others_;
  std::vector<FileDescriptor> unidentified_;
  std::vector<std::vector<FileDescriptor>> received_;
};

}  // namespace cox::detail::world
