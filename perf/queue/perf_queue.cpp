#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/queue/candidates/intrusive_list.hpp>
#include <coxswain/perf/queue/candidates/mailbox_lane.hpp>
#include <coxswain/perf/queue/candidates/stamped_moodycamel.hpp>
#include <coxswain/perf/queue/candidates/ticket_ring.hpp>
#include <coxswain/perf/queue/cases.hpp>
#include <coxswain/perf/queue/peers/asio_post.hpp>
#include <coxswain/perf/queue/peers/condition_queue.hpp>
#include <coxswain/perf/queue/peers/moodycamel_queue.hpp>
#include <coxswain/perf/queue/peers/mutex_inline.hpp>
#include <coxswain/perf/queue/peers/spsc_ring.hpp>

int main(int argc, char** argv) {
  using namespace cox::perf;
  const Options options = parse_options(argc, argv, "Compares queues that pass closures to one thread.");
  Suite suite(options, "mailbox");
  LaneCases cases(suite, options.quick,                                               //
                  Named<MailboxLane>{"mailbox"},                                      //
                  Named<TicketRing<0>>{"ticket_ring"},                                //
                  Named<TicketRing<4>>{"ticket_ring_prefetch"},                       //
                  Named<IntrusiveList>{"intrusive_list", "bound of 1/8 a producer"},  //
                  Named<StampedMoodycamel>{"stamped_moodycamel", "bound of 1/8 a producer"},
                  Named<SpscRing>{"spsc_ring", "spins, always bounded"},          //
                  Named<MutexInline>{"mutex_inline", "runs on the caller"},       //
                  Named<MoodycamelQueue<true>>{"moodycamel_tokens", "no bound"},  //
                  Named<MoodycamelQueue<false>>{"moodycamel_plain", "no bound"},  //
                  Named<ConditionQueue>{"condition_queue"},                       //
                  Named<AsioPost>{"asio_post", "no bound"});
  cases.add_throughput<32>("F1", bounded_capacity);
  cases.add_throughput<32>("F1", 0);
  cases.add_throughput<128>("F2", bounded_capacity);
  cases.add_throughput<128>("F2", 0);
  cases.add_memory<32>("F1", bounded_capacity);
  cases.add_memory<32>("F1", 0);
  cases.add_hand_off();
  cases.add_round_trips("round trip");
  cases.add_bursts();
  return suite.run();
}
