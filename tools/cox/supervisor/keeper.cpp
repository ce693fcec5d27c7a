#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/tools/cox/byte_text.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <source_location>
#include <string>
#include <system_error>
#include <utility>

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

void send(int socket, const KeeperMessage& message) { send_message(socket, message, KeeperWait::Yes, here); }

void send_done(int socket, std::uint64_t number = 0) {
  KeeperMessage done;
  done.kind = Kind::Done;
  done.bytes = number;
  send(socket, done);
}

void send_refusal(int socket, const KeptError& error, KeeperWait wait = KeeperWait::Yes) {
  KeeperMessage refusal;
  refusal.kind = Kind::Refused;
  refusal.number = static_cast<std::uint64_t>(error.kind());
  refusal.text = std::string(error.what()).substr(0, KeeperMessage::max_text);
  send_message(socket, refusal, wait, here);
}

// The sum, or the largest number if it is larger: a process may send any sizes.
std::uint64_t sum_of(const std::vector<std::uint64_t>& sizes, std::uint64_t sum = 0) noexcept {
  for (const std::uint64_t size : sizes)
    sum =
        size > std::numeric_limits<std::uint64_t>::max() - sum ? std::numeric_limits<std::uint64_t>::max() : sum + size;
  return sum;
}

FileDescriptor open_spare() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Keeper::RunSocket::RunSocket(std::filesystem::path at) : path(std::move(at)), listener(listen_local(path)) {}

Keeper::RunSocket::RunSocket(RunSocket&& other) noexcept
    : path(std::move(other.path)), listener(std::move(other.listener)) {}

Keeper::RunSocket& Keeper::RunSocket::operator=(RunSocket&& other) noexcept {
  if (listener.is_open()) static_cast<void>(unlink(path.c_str()));
  path = std::move(other.path);
  listener = std::move(other.listener);
  return *this;
}

Keeper::RunSocket::~RunSocket() {
  if (listener.is_open()) static_cast<void>(unlink(path.c_str()));
}

Keeper::Keeper(std::filesystem::path sockets, KeeperLimits limits)
    : sockets_(std::move(sockets)), limits_(limits), spare_(open_spare()) {}

Keeper::RunSocket Keeper::next_socket() {
  return RunSocket(std::filesystem::path(sockets_) += "-" + std::to_string(++runs_));
}

const std::filesystem::path& Keeper::prepare_run() {
  prepared_ = next_socket();
  return prepared_.path;
}

void Keeper::begin_run() {
  run_ = prepared_.listener.is_open() ? std::move(prepared_) : next_socket();
  used_ = false;
  has_values_ = false;
  progresses_ = true;
}

std::vector<int> Keeper::descriptors() const {
  std::vector<int> all;
  if (run_.listener.is_open()) all.push_back(run_.listener.get());
  for (const LocalConnection& each : connections_) all.push_back(each.socket.get());
  return all;
}

void Keeper::serve(const KeptUse& others) {
  others_ = others;
  if (!run_.listener.is_open()) return;
  accept_connections();
  std::erase_if(connections_, [this](LocalConnection& each) {
    while (is_readable(each.socket.get()))
      if (!answer_one(each)) return true;
    return false;
  });
}

// Processes that wait for a connection would keep the listener readable, so those that cannot have one are
// disconnected.
void Keeper::accept_connections() {
  constexpr time_t longest = 5;  // seconds for which a stopped process may keep its answer from being sent
  if (!spare_.is_open()) spare_ = open_spare();
  for (;;) {
    errno = 0;
    auto accepted = accept_local(run_.listener.get());
    if (!accepted && (errno == EMFILE || errno == ENFILE) && spare_.is_open()) {
      spare_.reset();
      accepted = accept_local(run_.listener.get());
      const bool was_there = accepted.has_value();  // accept also fails like this if no process waits
      accepted.reset();
      spare_ = open_spare();
      if (was_there) continue;
      return;
    }
    if (!accepted) return;
    if (connections_.size() >= limits_.connections) continue;
    limit_waits(accepted->socket.get(), longest);
    connections_.push_back(std::move(*accepted));
  }
}

bool Keeper::answer_one(LocalConnection& from) {
  try {
    auto message = receive_message(from.socket.get(), here);
    if (!message) return false;
    answer(std::move(*message), from);
    return true;
  } catch (const KeptError& error) {
    if (error.kind() == KeptError::Kind::Descriptors) return refuse_pieces(from, error);
    try {  // not a message, one of another version, or the other end is closed
      send_refusal(from.socket.get(), error, KeeperWait::Shortly);
    } catch (const KeptError&) {
    }
    return false;
  }
}

// The pieces of a request could not be received. Returns false if the process cannot be notified.
bool Keeper::refuse_pieces(const LocalConnection& from, const KeptError& error) {
  drop_incomplete(from);
  try {
    send_refusal(from.socket.get(), error);
    return true;
  } catch (const KeptError&) {
    return false;
  }
}

bool Keeper::end_run() {
  serve(others_);
  connections_.clear();
  run_.listener.reset();
  static_cast<void>(unlink(run_.path.c_str()));
  for (auto& [name, set] : sets_) {
    std::erase_if(set.allocations, [](const auto& each) { return !each.second.is_complete; });
    set.is_open = false;
    set.owner = 0;
  }
  drop_empty_sets();
  return std::exchange(has_values_, false) && progresses_;
}

void Keeper::drop_empty_sets() {
  std::erase_if(sets_, [](const auto& each) { return each.second.allocations.empty() && each.second.lost.empty(); });
}

void Keeper::lose_gpu_memory() {
  for (auto& [name, set] : sets_) {
    std::set<std::string> devices;
    for (const auto& [key, allocation] : set.allocations)
      if (key.first.starts_with("GPU-")) devices.insert(key.first);
    for (const std::string& device : devices) lose(set, device);
  }
}

void Keeper::lose(Set& set, const std::string& device) {
  const auto lost = std::erase_if(set.allocations, [&](const auto& each) { return each.first.first == device; });
  if (lost == 0) return;
  set.lost.insert(device);
  if (set.allocations.empty()) set.restart_history();
}

void Keeper::lose(const Message& message, const LocalConnection& from) {
  lose(open_set(message, from), message.device);
  send_done(from.socket.get());
}

void Keeper::answer(Message message, const LocalConnection& from) {
  const Kind kind = message.kind;
  try {
    switch (kind) {
      case Kind::Open: return open(message, from);
      case Kind::Keep: return keep(std::move(message), from);
      case Kind::Take: return take(message, from);
      case Kind::Forget: return forget(message, from);
      case Kind::Lost: return lose(message, from);
      case Kind::Values: return note_values(std::move(message), from);
      case Kind::Found: return note_found(message, from);
      case Kind::Close: open_set(message, from).is_open = false; return;
      default: throw KeptError(KeptError::Kind::Supervisor, "a process has sent an answer instead of a request");
    }
  } catch (const KeptError& error) {
    if (kind == Kind::Values || kind == Kind::Close) return;  // expects no answer
    send_refusal(from.socket.get(), error);
  }
}

void Keeper::open(const Message& message, const LocalConnection& from) {
  used_ = true;
  if (!sets_.contains(message.set) && sets_.size() == limits_.sets)
    throw KeptError(KeptError::Kind::Limit,
                    "the supervisor holds no more than " + std::to_string(limits_.sets) + " sets");
  auto [found, is_new] = sets_.try_emplace(message.set);
  Set& set = found->second;
  // Another process of the run may have it only in the next run: when its owner has certainly ended.
  if (set.is_open || (set.owner != 0 && set.owner != from.process))
    throw KeptError(KeptError::Kind::InUse,
                    "the kept set '" + message.set + "' is open in process " + std::to_string(set.owner));
  if (is_new || set.allocations.empty()) {
    if (set.schema != message.text || set.mode != message.name) set.lost.clear();
    set.schema = message.text;
    set.mode = message.name;
  }
  if (set.schema != message.text || set.mode != message.name)
    throw KeptError(KeptError::Kind::Schema, "the kept set '" + message.set + "' is held with schema '" + set.schema +
                                                 "' (" + set.mode + "), and was to be opened with '" + message.text +
                                                 "' (" + message.name + ")");
  set.is_open = true;
  set.owner = from.process;
  for (const auto& [key, allocation] : set.allocations) {
    if (!allocation.is_complete) continue;
    Message held;
    held.kind = Kind::Held;
    held.device = key.first;
    held.name = key.second;
    held.bytes = allocation.bytes;
    held.number = allocation.epoch;
    send(from.socket.get(), held);
  }
  for (const auto& [device, all] : set.values)
    for (const Values& values : all) {
      Message of_epoch;
      of_epoch.kind = Kind::Values;
      of_epoch.device = device;
      of_epoch.number = values.epoch;
      of_epoch.payload = values.bytes;
      send(from.socket.get(), of_epoch);
    }
  for (const std::string& device : set.lost) {
    Message lost;
    lost.kind = Kind::Lost;
    lost.device = device;
    send(from.socket.get(), lost);
  }
  Message opened;
  opened.kind = Kind::Opened;
  opened.number = ++generation_;
  send(from.socket.get(), opened);
}

Keeper::Set& Keeper::open_set(const Message& message, const LocalConnection& from) {
  const auto found = sets_.find(message.set);
  if (found == sets_.end() || !found->second.is_open || found->second.owner != from.process)
    throw KeptError(KeptError::Kind::Order, "the kept set '" + message.set + "' is not open in this process");
  return found->second;
}

std::size_t Keeper::allocations() const noexcept {
  return std::accumulate(sets_.begin(), sets_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& each) { return sum + each.second.allocations.size(); });
}

void Keeper::keep(Message message, const LocalConnection& from) {
  Set& set = open_set(message, from);
  const std::pair key(message.device, message.name);
  auto found = set.allocations.find(key);
  if (found != set.allocations.end() && found->second.is_complete)
    throw KeptError(KeptError::Kind::InUse,
                    "memory '" + message.name + "' of the kept set '" + message.set + "' is held already");
  try {
    require_room(message, found != set.allocations.end() ? &found->second : nullptr);
  } catch (const KeptError&) {
    if (found != set.allocations.end()) set.allocations.erase(found);
    throw;
  }
  Allocation& allocation = found != set.allocations.end() ? found->second : set.allocations[key];
  allocation.bytes = message.bytes;
  std::from_chars(message.text.data(), message.text.data() + message.text.size(), allocation.epoch);
  std::ranges::copy(message.sizes, std::back_inserter(allocation.sizes));
  std::ranges::move(message.descriptors, std::back_inserter(allocation.descriptors));
  allocation.is_complete = message.number == 1;
  send_done(from.socket.get());
}

void Keeper::require_room(const Message& message, const Allocation* part) const {
  const std::string what = "memory '" + message.name + "' of the kept set '" + message.set + "' on " + message.device;
  const std::uint64_t part_bytes = part != nullptr ? sum_of(part->sizes) : 0;
  const std::uint64_t others = others_.bytes + bytes() - part_bytes;
  // The first packet has the size of the allocation: what does not fit is refused before its pieces have arrived.
  const std::uint64_t wanted = std::max(message.bytes, sum_of(message.sizes, part_bytes));
  if (wanted > limits_.bytes || others > limits_.bytes - wanted)
    throw KeptError(KeptError::Kind::Limit, what + " needs " + format_byte_count(wanted) + "; the supervisor holds " +
                                                format_byte_count(others) + " and may hold " +
                                                format_byte_count(limits_.bytes) + " (cox run --kept-limit)");
  if (const std::size_t all = others_.allocations + allocations(); part == nullptr && all >= limits_.allocations)
    throw KeptError(KeptError::Kind::Limit, what + " is one too many: the supervisor holds " + std::to_string(all) +
                                                " allocations and may hold " + std::to_string(limits_.allocations));
  const std::size_t held = others_.descriptors + pieces();
  if (message.sizes.size() > limits_.descriptors || held > limits_.descriptors - message.sizes.size())
    throw KeptError(KeptError::Kind::Descriptors, what + " needs " + std::to_string(message.sizes.size()) +
                                                      " more file descriptors; the supervisor holds " +
                                                      std::to_string(held) + " and may hold " +
                                                      std::to_string(limits_.descriptors) + " (ulimit -n)");
}

void Keeper::drop_incomplete(const LocalConnection& from) noexcept {
  for (auto& [name, set] : sets_)
    if (set.owner == from.process)
      std::erase_if(set.allocations, [](const auto& each) { return !each.second.is_complete; });
}

void Keeper::take(const Message& message, const LocalConnection& from) {
  Set& set = open_set(message, from);
  const auto found = set.allocations.find({message.device, message.name});
  if (found == set.allocations.end() || !found->second.is_complete)
    throw KeptError(KeptError::Kind::Order, "no memory '" + message.name + "' of the kept set '" + message.set +
                                                "' is held for " + message.device);
  const Allocation& allocation = found->second;
  if (message.number >= allocation.sizes.size())
    throw KeptError(KeptError::Kind::Order, "memory '" + message.name + "' of the kept set '" + message.set + "' has " +
                                                std::to_string(allocation.sizes.size()) + " pieces");
  const auto first = static_cast<std::size_t>(message.number);
  const std::size_t count = std::min(Message::pieces_at_a_time, allocation.sizes.size() - first);
  Message pieces = duplicate_of(allocation.descriptors, first, count);
  pieces.kind = Kind::Pieces;
  pieces.device = message.device;
  pieces.name = message.name;
  pieces.number = first + count == allocation.sizes.size() ? 1 : 0;
  const auto begin = allocation.sizes.begin() + static_cast<std::ptrdiff_t>(first);
  pieces.sizes.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  send(from.socket.get(), pieces);
}

void Keeper::forget(const Message& message, const LocalConnection& from) {
  Set& set = open_set(message, from);
  if (message.name.empty()) {
    set.allocations.clear();
    set.lost.clear();
    set.restart_history();
  } else {
    set.allocations.erase({message.device, message.name});
  }
  send_done(from.socket.get());
}

void Keeper::note_values(Message message, const LocalConnection& from) {
  Set& set = open_set(message, from);
  const auto is_of_device = [&](const auto& each) { return each.first.first == message.device; };
  if (std::ranges::none_of(set.allocations, is_of_device)) return;  // there is nothing that they belong to
  set.lost.erase(message.device);
  std::deque<Values>& values = set.values[message.device];
  // After a restart without a common epoch the numbers go on from the greatest; what follows is of another history.
  std::erase_if(values, [&](const Values& each) { return each.epoch >= message.number; });
  values.push_back({message.number, std::move(message.payload)});
  if (values.size() > limits_.epochs) values.pop_front();
  has_values_ = true;
}

void Keeper::note_found(const Message& message, const LocalConnection& from) {
  Set& set = open_set(message, from);
  const bool progresses = message.number > set.last_found;
  set.runs_without_commit = progresses ? 0 : set.runs_without_commit + 1;
  set.last_found = message.number;
  if (!progresses) progresses_ = false;
  send_done(from.socket.get(), set.runs_without_commit);
}

bool Keeper::holds_memory() const noexcept { return allocations() != 0; }

std::uint64_t Keeper::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& [name, set] : sets_)
    for (const auto& [key, allocation] : set.allocations) sum = sum_of(allocation.sizes, sum);
  return sum;
}

std::size_t Keeper::pieces() const noexcept {
  std::size_t sum = 0;
  for (const auto& [name, set] : sets_)
    for (const auto& [key, allocation] : set.allocations) sum += allocation.descriptors.size();
  return sum;
}

std::string Keeper::to_string() const {
  std::string text;
  for (const auto& [name, set] : sets_) {
    std::set<std::string> devices;
    std::uint64_t bytes = 0;
    for (const auto& [key, allocation] : set.allocations) {
      devices.insert(key.first);
      bytes = sum_of(allocation.sizes, bytes);
    }
    std::uint64_t last = 0;
    for (const auto& [device, values] : set.values)
      if (!values.empty()) last = std::max(last, values.back().epoch);
    text += name + ": " + std::to_string(set.allocations.size()) + " allocations, " + short_byte_count(bytes) + " on ";
    for (const std::string& device : devices) text += (device == *devices.begin() ? "" : ", ") + device;
    text += ", values of update " + std::to_string(last) + "\n";
  }
  return text;
}

}  // namespace cox::tools
