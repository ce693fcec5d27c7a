# What find_package(coxswain) reads after installation.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/coxswain")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/coxswainConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/coxswainConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/coxswainConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/coxswainConfig.cmake"
  "${PROJECT_BINARY_DIR}/coxswainConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindConcurrentQueue.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindPrometheusCore.cmake"
  DESTINATION "${package_dir}")
install(EXPORT coxswainTargets NAMESPACE coxswain:: DESTINATION "${package_dir}")
