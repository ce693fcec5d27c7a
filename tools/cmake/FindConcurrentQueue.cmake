# moodycamel's queue: concurrentqueue::concurrentqueue makes <concurrentqueue.h> known. Debian keeps the headers in
# /usr/include/concurrentqueue, its own installation in .../concurrentqueue/moodycamel. Installed beside coxswain's
# package file, which uses it too.

find_path(ConcurrentQueue_INCLUDE_DIR concurrentqueue.h
  PATH_SUFFIXES concurrentqueue concurrentqueue/moodycamel
  DOC "Folder of moodycamel's concurrentqueue.h (Debian package libconcurrentqueue-dev)")
mark_as_advanced(ConcurrentQueue_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ConcurrentQueue
  REQUIRED_VARS ConcurrentQueue_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install the Debian package libconcurrentqueue-dev")

if(ConcurrentQueue_FOUND AND NOT TARGET concurrentqueue::concurrentqueue)
  add_library(concurrentqueue::concurrentqueue INTERFACE IMPORTED)
  target_include_directories(concurrentqueue::concurrentqueue INTERFACE "${ConcurrentQueue_INCLUDE_DIR}")
endif()
