// Random collectives and transfers over random sets of GPUs: the ranks get the same bits whether their devices belong
// to one process or to several. The driver and NCCL are stand-ins.

#include <coxswain/tests/programs/world_gpu_collectives.hpp>

int main(int count, char** arguments) {
  if (count > 1) return cox::test::guarded_work(arguments);
  return cox::test::compare({{1, 4}, {2, 2}, {4, 1}}, "4");
}
