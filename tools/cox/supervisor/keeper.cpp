#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/tools/cox/byte_text.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <numeric>
#include <set>
#include <source_location>
#include <system_error>

namespace cox::tools {
namespace {

using Kind = KeeperMessage::Kind;

constexpr std::source_location here = std::source_location::current();

KeeperMessage duplicate_of(const std::vector<FileDescriptor>& descriptors, std::size_t first, std::size_t count) {
  KeeperMessage message;
  for (std::size_t i = first; i < first + count; ++i) {
    message.descriptors.emplace_back(fcntl(descriptors[i].get(), F_DUPFD_CLOEXEC, 0));
    if (!message.descriptors.back().is_open())
      throw KeptError(KeptError::Kind::Descriptors, "the supervisor has no file descriptor left");
  }
  return message;
}

}  // namespace

FileDescriptor Keeper::begin_run() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  socket_.reset(ends[0]);
  FileDescriptor of_run(ends[1]);
  constexpr int room = 4 << 20;  // several messages with values as large as they may be
  for (const int end : ends) static_cast<void>(setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
  if (fcntl(of_run.get(), F_SETFD, 0) != 0) throw std::system_error(errno, std::generic_category(), "fcntl");
  // A process that was stopped in the middle of an answer must not stop the supervisor.
  constexpr timeval longest{.tv_sec = 5, .tv_usec = 0};
  static_cast<void>(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest)));
  used_ = false;
  has_values_ = false;
  progresses_ = true;
  return of_run;
}

bool Keeper::answer_one() {
  if (!socket_.is_open()) return false;
  try {
    auto message = receive_message(socket_.get(), here);
    if (!message) {
      socket_.reset();
      return false;
    }
    answer(std::move(*message));
  } catch (const KeptError&) {  // not a message, or the other end is closed
    socket_.reset();
  }
  return socket_.is_open();
}

bool Keeper::end_run() {
  while (answer_one()) {
  }
  for (auto& [name, set] : sets_) {
    std::erase_if(set.allocations, [](const auto& each) { return !each.second.is_complete; });
    set.is_open = false;
  }
  return has_values_ && progresses_;
}

void Keeper::answer(Message message) {
  const Kind kind = message.kind;
  try {
    switch (kind) {
      case Kind::Open: return open(message);
      case Kind::Keep: return keep(std::move(message));
      case Kind::Take: return take(message);
      case Kind::Forget: return forget(message);
      case Kind::Values: return note_values(std::move(message));
      case Kind::Found: return note_found(message);
      case Kind::Close: open_set(message).is_open = false; return;
      default: throw KeptError(KeptError::Kind::Supervisor, "a process has sent an answer instead of a request");
    }
  } catch (const KeptError& error) {
    if (kind == Kind::Values || kind == Kind::Close) return;  // expects no answer
    Message refusal;
    refusal.kind = Kind::Refused;
    refusal.number = static_cast<std::uint64_t>(error.kind());
    refusal.text = std::string(error.what()).substr(0, Message::max_text);
    send(refusal);
  }
}

void Keeper::open(const Message& message) {
  used_ = true;
  if (!sets_.contains(message.set) && sets_.size() == limits_.sets)
    throw KeptError(KeptError::Kind::Limit,
                    "the supervisor holds no more than " + std::to_string(limits_.sets) + " sets");
  auto [found, is_new] = sets_.try_emplace(message.set);
  Set& set = found->second;
  if (set.is_open)
    throw KeptError(KeptError::Kind::InUse, "the kept set '" + message.set + "' is open in another process");
  if (is_new || set.allocations.empty()) {
    set.schema = message.text;
    set.mode = message.name;
  }
  if (set.schema != message.text || set.mode != message.name)
    throw KeptError(KeptError::Kind::Schema, "the kept set '" + message.set + "' is held with schema '" + set.schema +
                                                 "' (" + set.mode + "), and was to be opened with '" + message.text +
                                                 "' (" + message.name + ")");
  set.is_open = true;
  for (const auto& [key, allocation] : set.allocations) {
    if (!allocation.is_complete) continue;
    Message held;
    held.kind = Kind::Held;
    held.device = key.first;
    held.name = key.second;
    held.bytes = allocation.bytes;
    send(held);
  }
  for (const auto& [device, all] : set.values)
    for (const Values& values : all) {
      Message of_epoch;
      of_epoch.kind = Kind::Values;
      of_epoch.device = device;
      of_epoch.number = values.epoch;
      of_epoch.payload = values.bytes;
      send(of_epoch);
    }
  Message opened;
  opened.kind = Kind::Opened;
  opened.number = ++generation_;
  send(opened);
}

Keeper::Set& Keeper::open_set(const Message& message) {
  const auto found = sets_.find(message.set);
  if (found == sets_.end() || !found->second.is_open)
    throw KeptError(KeptError::Kind::Order, "the kept set '" + message.set + "' is not open");
  return found->second;
}

std::size_t Keeper::allocations() const noexcept {
  return std::accumulate(sets_.begin(), sets_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& each) { return sum + each.second.allocations.size(); });
}

void Keeper::keep(Message message) {
  Set& set = open_set(message);
  const std::pair key(message.device, message.name);
  auto found = set.allocations.find(key);
  if (found != set.allocations.end() && found->second.is_complete)
    throw KeptError(KeptError::Kind::InUse,
                    "memory '" + message.name + "' of the kept set '" + message.set + "' is held already");
  const std::uint64_t size = std::accumulate(message.sizes.begin(), message.sizes.end(), std::uint64_t{0});
  if (size > limits_.bytes || bytes() > limits_.bytes - size || allocations() >= limits_.allocations) {
    if (found != set.allocations.end()) set.allocations.erase(found);
    throw KeptError(KeptError::Kind::Limit, "the supervisor may hold " + short_byte_count(limits_.bytes) + " in " +
                                                std::to_string(limits_.allocations) + " allocations, and holds " +
                                                short_byte_count(bytes()));
  }
  Allocation& allocation = found != set.allocations.end() ? found->second : set.allocations[key];
  allocation.bytes = message.bytes;
  std::ranges::copy(message.sizes, std::back_inserter(allocation.sizes));
  std::ranges::move(message.descriptors, std::back_inserter(allocation.descriptors));
  allocation.is_complete = message.number == 1;
  send(Kind::Done);
}

void Keeper::take(const Message& message) {
  Set& set = open_set(message);
  const auto found = set.allocations.find({message.device, message.name});
  if (found == set.allocations.end() || !found->second.is_complete)
    throw KeptError(KeptError::Kind::Order, "no memory '" + message.name + "' of the kept set '" + message.set +
                                                "' is held for " + message.device);
  const Allocation& allocation = found->second;
  for (std::size_t first = 0; first < allocation.sizes.size(); first += Message::max_pieces) {
    const std::size_t count = std::min(Message::max_pieces, allocation.sizes.size() - first);
    Message pieces = duplicate_of(allocation.descriptors, first, count);
    pieces.kind = Kind::Pieces;
    pieces.number = first + count == allocation.sizes.size() ? 1 : 0;
    const auto begin = allocation.sizes.begin() + static_cast<std::ptrdiff_t>(first);
    pieces.sizes.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    send(pieces);
  }
}

void Keeper::forget(const Message& message) {
  Set& set = open_set(message);
  if (message.name.empty()) {
    set.allocations.clear();
    set.values.clear();
  } else {
    set.allocations.erase({message.device, message.name});
  }
  send(Kind::Done);
}

void Keeper::note_values(Message message) {
  std::deque<Values>& values = open_set(message).values[message.device];
  // After a restart without a common epoch the numbers go on from the greatest; what follows is of another history.
  std::erase_if(values, [&](const Values& each) { return each.epoch >= message.number; });
  values.push_back({message.number, std::move(message.payload)});
  if (values.size() > limits_.epochs) values.pop_front();
  has_values_ = true;
}

void Keeper::note_found(const Message& message) {
  Set& set = open_set(message);
  const bool progresses = message.number > set.last_found;
  set.runs_without_commit = progresses ? 0 : set.runs_without_commit + 1;
  set.last_found = message.number;
  if (!progresses) progresses_ = false;
  Message done;
  done.kind = Kind::Done;
  done.bytes = set.runs_without_commit;
  send(done);
}

void Keeper::send(const Message& message) { send_message(socket_.get(), message, KeeperWait::Yes, here); }

void Keeper::send(Kind kind) {
  Message message;
  message.kind = kind;
  send(message);
}

bool Keeper::holds_memory() const noexcept { return allocations() != 0; }

std::uint64_t Keeper::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& [name, set] : sets_)
    for (const auto& [key, allocation] : set.allocations)
      sum = std::accumulate(allocation.sizes.begin(), allocation.sizes.end(), sum);
  return sum;
}

std::string Keeper::to_string() const {
  std::string text;
  for (const auto& [name, set] : sets_) {
    std::set<std::string> devices;
    std::uint64_t bytes = 0;
    for (const auto& [key, allocation] : set.allocations) {
      devices.insert(key.first);
      bytes = std::accumulate(allocation.sizes.begin(), allocation.sizes.end(), bytes);
    }
    std::uint64_t last = 0;
    for (const auto& [device, values] : set.values)
      if (!values.empty()) last = std::max(last, values.back().epoch);
    text += name + ": " + std::to_string(set.allocations.size()) + " allocations, " + short_byte_count(bytes) + " on ";
    for (const std::string& device : devices) text += (device == *devices.begin() ? "" : ", ") + device;
    text += ", last commit " + std::to_string(last) + "\n";
  }
  return text;
}

}  // namespace cox::tools
