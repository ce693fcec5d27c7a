#pragma once

#include <coxswain/runtime/socket/descriptor_packet.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace cox {

/// One packet between a process and its supervisor (`cox run`) about kept memory, on a local socket of type
/// SOCK_SEQPACKET. Fields that a kind does not name are empty. A process sends one request at a time; each is answered
/// by the packets named here, or by Refused. So each packet with descriptors is acknowledged before the next one is
/// sent: both sides close theirs, and few are in flight.
///
/// Requests:
/// - Open {set, text: schema, name: mode}: Held for each allocation, Values for each commit, Lost for each device of
/// which
///   the memory was lost after its last commit, then Opened.
/// - Keep {set, device, name, bytes: as requested, text: epoch of the last update before the memory was made, sizes and
///   descriptors of these pieces, number: 1 for the last packet of the allocation}: Done.
/// - Take {set, device, name, number: of the first piece, from 0}: Pieces, at most pieces_at_a_time of them; number: 1
///   if the last piece is among them.
/// - Forget {set; device and name, or neither for all}: Done.
/// - Lost {set, device}: Done. What is held for the device does not exist any more.
/// - Found {set, number: the last epoch that the memory has been committed at}: Done {bytes: runs in a row that ended
///   without a commit}.
/// - Values {set, device, number: epoch, payload}, Close {set}: no answer.
///
/// Answers: Held {device, name, bytes, number: epoch as in Keep}; Values {device, number: epoch, payload}; Lost
/// {device}; Opened {number: generation, greater than that of every earlier process that has opened a set}; Pieces
/// {device, name, sizes, descriptors}; Refused {number: a KeptError::Kind, text}.
struct KeeperMessage {
  enum class Kind : std::uint8_t {
    Open = 1,
    Keep,
    Take,
    Forget,
    Values,
    Found,
    Close,
    Held,
    Opened,
    Pieces,
    Done,
    Refused,
    Lost
  };

  static constexpr std::uint8_t version = 3;
  static constexpr std::size_t max_name = 255;           ///< bytes of `set`, `device` and `name`
  static constexpr std::size_t max_text = 4096;          ///< bytes of `text`
  static constexpr std::size_t max_payload = 64 * 1024;  ///< bytes
  static constexpr std::size_t max_pieces = DescriptorPacket::max_descriptors;
  /// Descriptors that Keep and Pieces carry at most, so that a process holds no more of them at a time.
  static constexpr std::size_t pieces_at_a_time = 64;

  Kind kind = Kind::Done;
  std::string set;
  std::string device;  ///< as ComputeClient calls it: "host:0", or the UUID of a GPU
  std::string name;
  std::string text;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sizes;  ///< of the pieces in bytes, one for each descriptor
  std::vector<std::byte> payload;
  std::vector<FileDescriptor> descriptors;

  /// The packet without its descriptors. Precondition: no field is longer than the limits.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// std::nullopt if the bytes are not a packet of this version.
  [[nodiscard]] static std::optional<KeeperMessage> decode(std::span<const std::byte> packet);
};

/// How long a process waits for another one that does not run, such as a stopped supervisor, where it must not wait for
/// long.
inline constexpr std::chrono::milliseconds keeper_shortly{100};
/// Whether send_message may wait for the receiver: as long as it takes, or for keeper_shortly.
enum class KeeperWait : std::uint8_t { Yes, Shortly };

/// Sends a packet. Throws KeptError: Supervisor if the other end is closed, or if its buffer stays full and `wait` is
/// Shortly; Descriptors if too many descriptors are in flight; Limit if a field is too long.
void send_message(int socket, const KeeperMessage& message, KeeperWait wait, std::source_location site);
/// Waits for a packet and receives it; its descriptors are close-on-exec. Returns std::nullopt if the other end is
/// closed. Throws KeptError: Supervisor for what is not a packet or of another version, Descriptors if this process has
/// none left for those of the packet (which are closed).
[[nodiscard]] std::optional<KeeperMessage> receive_message(int socket, std::source_location site);

}  // namespace cox
