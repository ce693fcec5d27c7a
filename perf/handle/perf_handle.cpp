#include <coxswain/perf/handle/handle_cases.hpp>
#include <coxswain/perf/handle/handle_lane.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/candidates/mailbox_lane.hpp>
#include <coxswain/perf/queue/cases.hpp>
#include <coxswain/perf/queue/peers/asio_post.hpp>
#include <coxswain/perf/queue/peers/condition_queue.hpp>
#include <coxswain/perf/queue/peers/moodycamel_queue.hpp>
#include <coxswain/perf/queue/peers/mutex_inline.hpp>

int main(int argc, char** argv) {
  using namespace cox::perf;
  const Options options =
      parse_options(argc, argv, "Measures what DeviceHandle costs its clients, compared with alternatives.");
  Suite suite(options, "device_handle");

  const Named<HandleLane> ours{"device_handle"};
  const Named<MailboxLane> mailbox{"mailbox", "the lane alone"};
  const Named<MutexInline> mutex{"mutex_inline", "runs on the caller"};
  const Named<MoodycamelQueue<true>> moodycamel{"moodycamel_tokens", "no bound"};
  const Named<ConditionQueue> condition{"condition_queue"};
  const Named<AsioPost> asio{"asio_post", "no bound"};

  LaneCases hot(suite, options.quick, ours, mailbox, mutex, moodycamel, condition, asio);
  hot.add_throughput<32>("F1", bounded_capacity);
  hot.add_throughput<32>("F1", 0);
  hot.add_memory<32>("F1", bounded_capacity);
  hot.add_throughput<128>("F2", bounded_capacity);
  hot.add_hand_off();
  hot.add_round_trips("F3");
  hot.add_bursts();

  const Named<HandleLaneWithoutHistograms> counts{"without_histograms", "counts alone"};
  const Named<TracedHandleLane> traced{"traced"};
  LaneCases telemetry(suite, options.quick, ours, counts, traced);
  telemetry.add_throughput<32>("F17", bounded_capacity);
  HandleCases(suite, options.quick, ours, counts, traced).add_telemetry();

  HandleCases rest(suite, options.quick, ours, moodycamel, condition, asio);
  rest.add_after_idle();
  rest.add_idle_cost();
  rest.add_allocations();
  rest.add_memory_at_rest();
  return suite.run();
}
