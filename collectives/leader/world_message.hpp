#pragma once

#include <coxswain/collectives/leader/message_coder.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

/// The messages between the processes of a world and its leader. A link carries them in the order in which they are
/// sent. Processes have numbers from 0; the devices of a message have the names of the world (DeviceId::process).
///
/// A group is a sorted list of devices of at least two processes. An instance of a group is the group and an epoch,
/// from 1: a break ends an instance, and the next one has the next epoch. An instance has sequences of operations,
/// numbered from 1: that of all ranks, one for the transfers of each direction between ranks of two processes, and one
/// whose only operation is the creation of NCCL's communicators. A process gives each sequence that it opens a number
/// of its own, which it never uses again for another one.
namespace cox::detail::world {

inline constexpr std::uint32_t protocol_version = 4;
inline constexpr std::size_t max_text = 4096;         ///< bytes of a text; encode() cuts longer ones
inline constexpr std::size_t max_description = 1024;  ///< bytes of Ask::description; encode() cuts longer ones
inline constexpr std::size_t max_name = 255;          ///< bytes of a host name, an address or a version
inline constexpr std::size_t max_fingerprint = 4096;  ///< bytes of Ask::fingerprint; hash longer ones
inline constexpr std::size_t max_processes = 4096;    ///< of a world
inline constexpr std::size_t max_devices = 4096;      ///< of a group, or of a process
inline constexpr std::size_t max_sequences = 4096;    ///< that a process has open at a time
inline constexpr std::size_t max_awaited = 4096;      ///< operations that an Ask names
inline constexpr std::size_t max_requests = 65'536;   ///< of an operation
inline constexpr std::size_t max_shared = 4096;       ///< bytes of Share::bytes
inline constexpr std::size_t max_marks = 65'536;      ///< of a process that are not noted by all

inline constexpr std::uint16_t all_ranks = 0xffff;
inline constexpr std::uint16_t creation_rank = TransferRanks::of_creation().from;
inline constexpr std::uint16_t no_process = 0xffff;

using Token = WorldToken;

/// Which sequence of an instance: that of all ranks, of the transfers from one rank to another, or of the creation of
/// NCCL's communicators. Both members are all_ranks, or creation_rank, or neither is.
struct Direction {
  std::uint16_t from = all_ranks;
  std::uint16_t to = all_ranks;

  friend constexpr auto operator<=>(Direction, Direction) = default;
};
inline constexpr Direction creation_direction{.from = creation_rank, .to = creation_rank};

/// An operation, as the process of the message names it.
struct OperationName {
  std::uint64_t number = 0;     ///< of the sequence
  std::uint64_t operation = 0;  ///< from 1

  friend constexpr auto operator<=>(OperationName, OperationName) = default;
};

/// What a process reports about itself when it joins, and what the others learn about it.
struct ProcessFacts {
  std::string host = {};
  std::uint64_t pid = 0;
  std::uint32_t restart = 0;      ///< How often the run has been restarted.
  std::string versions = {};      ///< Of NCCL and the driver: "NCCL 2.28.9, driver 580.95"; empty without GPUs.
  std::string data_address = {};  ///< Where the process accepts data links.
  std::uint16_t data_port = 0;
  std::vector<DeviceId> devices = {};

  friend bool operator==(const ProcessFacts&, const ProcessFacts&) = default;
};

/// "process 1 (node7, pid 4711)"; "process 1" if it has not joined.
[[nodiscard]] std::string name_of_process(std::uint16_t process, const ProcessFacts& facts);

// Joining, and the link itself.

/// The first message of a process. Decoding a Hello of another protocol version gives that version only; all other
/// members are empty.
struct Hello {
  std::uint32_t protocol = protocol_version;
  Token token{};
  std::string library = {};  ///< Version of this library.
  std::string run = {};      ///< Id of the run.
  std::uint16_t process = 0;
  std::uint16_t processes = 0;  ///< Number of processes of the world.
  ProcessFacts facts = {};

  friend bool operator==(const Hello&, const Hello&) = default;
};
/// The leader refuses the process; it closes the link.
struct Rejected {
  std::string text = {};

  friend bool operator==(const Rejected&, const Rejected&) = default;
};
/// All processes have joined, or had joined before. By number; one that is absent at this moment has devices only.
struct Welcome {
  std::vector<ProcessFacts> processes = {};
  std::uint64_t max_ahead = 0;  ///< LeaderOptions::max_ahead

  friend bool operator==(const Welcome&, const Welcome&) = default;
};
/// To the leader: the process has connected to all others. From the leader: so have all that are present. Only then
/// does a process of a new world return from join(), since it may leave at once. A successor does not wait for it.
struct Connected {
  friend bool operator==(const Connected&, const Connected&) = default;
};
/// From the leader, periodically, to the processes that have joined a world which has not started yet: for what it
/// waits.
struct Awaited {
  std::string text = {};  ///< "process 3 did not join the world"

  friend bool operator==(const Awaited&, const Awaited&) = default;
};
/// Sent in both directions, periodically; also the answer to the first one. Times are nanoseconds of the sender's
/// steady clock: see ClockOffset.
struct Heartbeat {
  std::uint64_t sent = 0;
  std::uint64_t heard = 0;  ///< `sent` of the last one from the other end; 0: none
  std::uint64_t held = 0;   ///< how long ago that one came

  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
/// The process leaves the world.
struct Bye {
  std::string text = {};  ///< Why; empty: in good order.

  friend bool operator==(const Bye&, const Bye&) = default;
};

// From a process to the leader.

/// Gives a sequence of an instance a number. A process opens each sequence of an instance once. `epoch` is the last
/// broken epoch that the process knows of (Broken), plus 1.
struct Open {
  std::uint64_t number = 0;
  std::vector<DeviceId> devices = {};
  std::uint64_t epoch = 1;
  Direction direction = {};
  /// An operation is overdue if it is not released so long after the first process has asked it.
  std::chrono::milliseconds timeout{0};

  friend bool operator==(const Open&, const Open&) = default;
};
/// All ranks of the process have submitted the operation, and agree. A process sends an Ask or a Refuse for each
/// operation of a sequence, in order, also for one that it knows to be refused.
struct Ask {
  std::uint64_t number = 0;
  std::uint64_t operation = 0;
  std::vector<std::byte> fingerprint = {};  ///< Equal for requests that match.
  std::string description = {};             ///< For errors: "all_reduce (sum) of 4 f32 at train.cpp:31".
  /// Operations that must be released, refused or broken before this one. The process has asked or refused them before.
  std::vector<OperationName> awaited = {};

  friend bool operator==(const Ask&, const Ask&) = default;
};
/// The process cannot do the operation. It is refused for all processes; the sequence continues with the next one.
struct Refuse {
  std::uint64_t number = 0;
  std::uint64_t operation = 0;
  CollectiveError::Kind kind = CollectiveError::Kind::RankFailed;
  std::string text = {};

  friend bool operator==(const Refuse&, const Refuse&) = default;
};
/// Ends the instance: this sequence from operation `from` on, the other sequences from their first operation on. Not
/// ended are operations that have been released, and refused ones that all members have asked for.
struct Break {
  std::uint64_t number = 0;
  std::uint64_t from = 0;
  CollectiveError::Kind kind = CollectiveError::Kind::Aborted;
  std::string text = {};

  friend bool operator==(const Break&, const Break&) = default;
};
/// The ranks of the process have completed all operations up to `completed`. Sent after each quarter of
/// Welcome::max_ahead operations, and with each heartbeat if there is something new.
struct Progress {
  std::uint64_t number = 0;
  std::uint64_t completed = 0;

  friend bool operator==(const Progress&, const Progress&) = default;
};
/// No later message of the process has this number. Ends the instance where it has not ended yet.
struct Close {
  std::uint64_t number = 0;

  friend bool operator==(const Close&, const Close&) = default;
};
/// The reply to a Why.
struct Answer {
  std::uint64_t question = 0;
  std::string text = {};  ///< What the missing ranks are doing.

  friend bool operator==(const Answer&, const Answer&) = default;
};

// From the leader to a process.

/// Launch the operation. Turns count from 1 over the whole world; a process receives its releases in the order of
/// turns.
struct Release {
  std::uint64_t number = 0;
  std::uint64_t operation = 0;
  std::uint64_t turn = 0;

  friend bool operator==(const Release&, const Release&) = default;
};
/// The operation is refused for all processes. May arrive before the process has asked it.
struct Refused {
  std::uint64_t number = 0;
  std::uint64_t operation = 0;
  CollectiveError::Kind kind = CollectiveError::Kind::RankFailed;
  std::string text = {};

  friend bool operator==(const Refused&, const Refused&) = default;
};
/// Where a sequence of a broken instance ends.
struct SequenceEnd {
  Direction direction = {};
  std::uint64_t from = 1;  ///< The first operation that is refused.

  friend bool operator==(const SequenceEnd&, const SequenceEnd&) = default;
};
/// The instance is broken, and so are those of its group with lower epochs. Operations before the end of their sequence
/// may still be released or refused. A second Broken of an instance can move ends towards the first operation; the
/// error of an operation is that of the first Broken that ended it.
struct Broken {
  std::vector<DeviceId> devices = {};
  std::uint64_t epoch = 1;
  std::vector<SequenceEnd> ends = {};  ///< Of the process's sequences; those not listed end at operation 1.
  CollectiveError::Kind kind = CollectiveError::Kind::Aborted;
  std::uint16_t process = no_process;  ///< Which process caused it; no_process: none alone.
  std::string text = {};

  friend bool operator==(const Broken&, const Broken&) = default;
};
/// The operation is overdue, and this process is missing: what are its ranks doing? It has one second for its Answer.
struct Why {
  std::uint64_t question = 0;
  std::vector<DeviceId> devices = {};
  std::uint64_t epoch = 1;
  Direction direction = {};
  std::uint64_t operation = 0;

  friend bool operator==(const Why&, const Why&) = default;
};
/// The process has left the world. Also sent to itself: it must leave, because its data links to others are broken.
struct Gone {
  std::uint16_t process = 0;
  CollectiveError::Kind kind = CollectiveError::Kind::ProcessGone;  ///< or ProcessSilent
  std::string text = {};

  friend bool operator==(const Gone&, const Gone&) = default;
};
/// A process has joined the world after its start: the successor of one that has gone. It has connected to all others.
/// Also sent to itself: its join is complete.
struct Joined {
  std::uint16_t process = 0;
  ProcessFacts facts = {};

  friend bool operator==(const Joined&, const Joined&) = default;
};

// On the link between two processes that carries the inputs of their ranks.

/// The first message of the process that connects.
struct DataHello {
  Token token{};
  std::uint16_t process = 0;
  std::uint32_t restart = 0;  ///< ProcessFacts::restart

  friend bool operator==(const DataHello&, const DataHello&) = default;
};
/// An operation, as all processes name it.
struct OperationOfAll {
  std::vector<DeviceId> devices = {};
  std::uint64_t epoch = 1;
  Direction direction = {};
  std::uint64_t operation = 0;

  friend bool operator==(const OperationOfAll&, const OperationOfAll&) = default;
};
/// What a rank gives: its input for each request, or why it cannot take part.
struct InputOfRank {
  std::uint16_t place = 0;  ///< of the rank in the operation
  std::string refusal = {};
  std::vector<std::uint64_t> bytes = {};  ///< by request

  friend bool operator==(const InputOfRank&, const InputOfRank&) = default;
};
/// The inputs of all ranks of the sender. The bytes follow the message, in the order of `ranks` and their requests.
struct Inputs {
  OperationOfAll of = {};
  std::vector<InputOfRank> ranks = {};

  friend bool operator==(const Inputs&, const Inputs&) = default;
};
/// The sender will not complete the operation.
struct AbortedOperation {
  OperationOfAll of = {};
  CollectiveError::Kind kind = CollectiveError::Kind::Aborted;
  std::string text = {};

  friend bool operator==(const AbortedOperation&, const AbortedOperation&) = default;
};

// Between the processes of an instance by way of the leader, which passes each of these on to the other member
// processes that are present.

/// The unique id of NCCL's communicators, from the process that has made it.
struct Share {
  OperationOfAll of = {};
  std::vector<std::byte> bytes = {};

  friend bool operator==(const Share&, const Share&) = default;
};
/// The operation has failed, or will give results that are not valid: the others must mark it, and what depends on it,
/// as failed before it may complete in the process that sends this. Operation 0: all that were released and have not
/// completed, because the sender gives the instance up.
struct Mark {
  std::uint64_t id = 0;  ///< To the leader: chosen by the process. From the leader: chosen by the leader.
  OperationOfAll of = {};
  CollectiveError::Kind kind = CollectiveError::Kind::RankFailed;
  std::string text = {};

  friend bool operator==(const Mark&, const Mark&) = default;
};
/// To the leader: the process has marked the operation. From the leader: all other member processes that are present
/// have marked it.
struct MarkNoted {
  std::uint64_t id = 0;

  friend bool operator==(const MarkNoted&, const MarkNoted&) = default;
};

/// About the data link between two processes, which has ended, or forwards nothing any more: see Stall. The leader
/// passes it on to `process`, and replaces that by the sender.
struct LinkCheck {
  enum class Kind : std::uint8_t {
    Asks,   ///< The sender waits for inputs, and nothing arrives.
    Sent,   ///< The answer: `bytes` were sent on the link.
    Broken  ///< They have not arrived, or the link has ended. The sender ends it, and `process` must do so, too.
  };
  Kind kind = Kind::Asks;
  std::uint16_t process = 0;
  std::uint32_t restart = 0;  ///< ProcessFacts::restart of `process`: another one ignores the message.
  std::uint64_t bytes = 0;

  friend bool operator==(const LinkCheck&, const LinkCheck&) = default;
};

using Message = std::variant<Hello, Rejected, Welcome, Heartbeat, Bye, Open, Ask, Refuse, Break, Progress, Close,
                             Answer, Release, Refused, Broken, Why, Gone, Joined, DataHello, Inputs, AbortedOperation,
                             Connected, Share, Mark, MarkNoted, LinkCheck, Awaited>;

/// The message as bytes: one for its type (its place in Message, plus 1), then its members in their order, little
/// endian, without padding. Texts and lists begin with their length. Throws MalformedMessage if it is larger than its
/// limits; texts are cut instead.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// The message of a whole frame. Allocates no more elements than the frame has bytes. Throws MalformedMessage.
[[nodiscard]] Message decode(std::span<const std::byte> frame);

/// Shortens a text to at most so many bytes, at the beginning of a UTF-8 character.
void cut(std::string& text, std::size_t most);

}  // namespace cox::detail::world
