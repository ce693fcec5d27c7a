#pragma once

// Debian and Ubuntu install moodycamel's queue in a folder of its own; other packagers do not.
#if __has_include(<concurrentqueue/concurrentqueue.h>)
#include <concurrentqueue/concurrentqueue.h>  // IWYU pragma: export
#elif __has_include(<concurrentqueue/moodycamel/concurrentqueue.h>)
#include <concurrentqueue/moodycamel/concurrentqueue.h>  // IWYU pragma: export
#else
#include <concurrentqueue.h>  // IWYU pragma: export
#endif
