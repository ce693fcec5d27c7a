# The core of prometheus-cpp alone: PrometheusCore::core. The package's own file wants the packages of its web server and
# of its push client, too. Installed beside coxswain's package file, which uses it. Prefers a static library when
# COX_STATIC_DEPENDENCIES is on.

if(COX_STATIC_DEPENDENCIES)
  set(names libprometheus-cpp-core.a prometheus-cpp-core)
else()
  set(names prometheus-cpp-core)
endif()
find_path(PrometheusCore_INCLUDE_DIR prometheus/text_serializer.h
  DOC "Folder of prometheus/text_serializer.h (Debian package prometheus-cpp-dev)")
find_library(PrometheusCore_LIBRARY NAMES ${names}
  DOC "prometheus-cpp's core library (Debian package prometheus-cpp-dev)")
mark_as_advanced(PrometheusCore_INCLUDE_DIR PrometheusCore_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PrometheusCore
  REQUIRED_VARS PrometheusCore_LIBRARY PrometheusCore_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install the Debian package prometheus-cpp-dev")

if(PrometheusCore_FOUND AND NOT TARGET PrometheusCore::core)
  add_library(PrometheusCore::core UNKNOWN IMPORTED)
  set_target_properties(PrometheusCore::core PROPERTIES
    IMPORTED_LOCATION "${PrometheusCore_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PrometheusCore_INCLUDE_DIR}")
endif()
