// A process of a world that keeps memory, for `cox run --processes`:
//   PROGRAM in_place|double UPDATES KILLS FOLDER [behind]
// In the first KILLS runs a process is killed at a random time, another one in each run; then all make UPDATES more
// updates. Every update writes its number to all elements. Appends to FOLDER/PROCESS what each run has found and what
// it has agreed on: "found 12 11 agreed 11". If the contents are not those of the agreement, the process ends with code
// 3, which nothing restarts. `behind`: in the first run process 0 commits update 5, and process 1 is killed in it.
// Without arguments the program makes a short run in each mode, without a supervisor.
#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/kept/kept_agreement.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/programs/kept_worker.hpp>

#include <filesystem>
#include <stdexcept>

namespace {

constexpr cox::DeviceId own_device{cox::host_device_type, 0};
constexpr std::size_t elements = 1 << 14;
constexpr std::uint64_t update_behind = 5;
constexpr int world_gone = 87;

struct How {
  cox::KeptMode mode = cox::KeptMode::InPlace;
  std::uint64_t updates = 20;
  std::uint64_t kills = 0;
  std::string folder{};  // empty: nothing is written
  bool behind = false;
};

class Worker {
 public:
  Worker(const cox::World& world, const How& how, std::uint64_t restart)
      : world_(world), how_(how), restart_(restart), set_("state", {own_device}, {.schema = "1", .mode = how.mode}) {
    static_cast<void>(client_.kept(set_, "values", elements * sizeof(std::uint64_t)));
  }

  int run() {
    const cox::KeptAgreement agreement = agree();
    if (!has_contents_of(agreement)) return kept_worker::wrong_contents;
    const bool fails = restart_ < how_.kills;
    if (fails && !how_.behind && restart_ * 2654435761U % world_.size() == world_.process()) kill_soon();
    const std::uint64_t last = agreement.last_epoch + (fails ? std::uint64_t{1} << 40U : how_.updates);
    for (std::uint64_t epoch = agreement.last_epoch + 1; epoch <= last; ++epoch) update(epoch);
    return kept_worker::all_are(client_.read_one(client_.kept_current(set_, "values")), last)
               ? 0
               : kept_worker::wrong_contents;
  }

 private:
  cox::KeptAgreement agree() {
    const cox::KeptOffer offer = cox::KeptOffer::from(set_.state());
    const cox::Handle all = client_.empty(world_.size() * sizeof(offer));
    client_.all_gather(client_.create(cox::Bytes::from_vector(std::vector{offer})), all, cox::ElementType::U64, all_);
    std::vector<cox::KeptOffer> offers(world_.size());
    const cox::Bytes bytes = client_.read_one(all);
    std::memcpy(offers.data(), bytes.span().data(), bytes.span().size());
    const auto agreement = cox::KeptAgreement::from(offers);
    set_.continue_at(agreement);
    note("found " + std::to_string(offer.epochs[0]) + " " + std::to_string(offer.epochs[1]) + " agreed " +
         std::to_string(agreement.epoch));
    return agreement;
  }

  bool has_contents_of(const cox::KeptAgreement& agreement) {
    const cox::KeptState state = set_.state();
    if (state.epoch != agreement.epoch || state.last_epoch != agreement.last_epoch) return false;
    if (agreement.epoch == 0) return state.kind != cox::KeptState::Kind::Whole;
    std::uint64_t value = 0;
    const auto& values = state.devices.front().values;
    if (state.kind != cox::KeptState::Kind::Whole || !values || values->size() != sizeof(value)) return false;
    std::memcpy(&value, values->data(), sizeof(value));
    return value == agreement.epoch &&
           kept_worker::all_are(client_.read_one(client_.kept_current(set_, "values")), agreement.epoch);
  }

  void update(std::uint64_t epoch) {
    client_.begin_update(set_, epoch);
    const cox::Handle& memory = client_.kept_next(set_, "values");
    client_.call(cox::KernelArguments().with_buffer(memory, cox::Access::Overwrite),
                 [epoch](std::span<void* const> pointers) {
                   auto* const data = static_cast<volatile std::uint64_t*>(pointers[0]);
                   for (std::size_t i = 0; i < elements; ++i) data[i] = epoch;
                 });
    if (how_.behind && restart_ == 0 && epoch == update_behind) fall_behind(epoch);
    client_.commit(set_, std::as_bytes(std::span(&epoch, 1)));
    // All processes have committed before one begins the next update; and a step is longer than its update, so that
    // most kills leave whole contents.
    for (int i = 0; i < 10; ++i) meet();
  }
  void meet() const {
    client_.all_reduce(one_, one_, cox::ElementType::F32, all_);
    static_cast<void>(client_.read_one(one_));
  }

  // Process 1 is killed when process 0 has committed.
  void fall_behind(std::uint64_t epoch) {
    const std::string committed = how_.folder + "/committed";
    if (world_.process() == 0) {
      client_.commit(set_, std::as_bytes(std::span(&epoch, 1)));
      client_.sync().get();
      std::ofstream(committed) << "yes" << std::endl;
      meet();
      throw std::logic_error("process 1 has not been killed");
    }
    client_.sync().get();
    while (!std::filesystem::exists(committed)) std::this_thread::yield();
    std::raise(SIGKILL);
  }

  static void kill_soon() {
    std::thread([] {
      kept_worker::wait_at_random(std::chrono::milliseconds(20));
      std::raise(SIGKILL);
    }).detach();
  }

  void note(const std::string& line) const {
    if (!how_.folder.empty()) kept_worker::note((how_.folder + "/" + std::to_string(world_.process())).c_str(), line);
  }

  const cox::World& world_;
  const How how_;
  const std::uint64_t restart_;
  const cox::HostClient client_ = cox::HostClient::load(own_device);
  const cox::CommunicationId all_ = cox::CommunicationId(world_.devices(cox::host_device_type));
  cox::KeptSet set_;
  const cox::Handle one_ = client_.create(cox::Bytes::zeroed(sizeof(float)));
};

int run(const std::vector<How>& runs) {
  const cox::World world = cox::World::join({own_device});
  const char* const restart = std::getenv("COX_RESTART");
  for (const How& how : runs) {
    const int code = Worker(world, how, restart == nullptr ? 0 : std::strtoull(restart, nullptr, 10)).run();
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 5) return run({{.mode = cox::KeptMode::InPlace}, {.mode = cox::KeptMode::Double}});
    return run({{.mode = std::string(argv[1]) == "double" ? cox::KeptMode::Double : cox::KeptMode::InPlace,
                 .updates = std::strtoull(argv[2], nullptr, 10),
                 .kills = std::strtoull(argv[3], nullptr, 10),
                 .folder = argv[4],
                 .behind = argc > 5}});
  } catch (const std::exception&) {
    std::fprintf(stderr, "%s: %s\n", argv[0], cox::describe(std::current_exception()).c_str());
    return world_gone;
  }
}
