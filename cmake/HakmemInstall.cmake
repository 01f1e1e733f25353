# HakmemInstall: libraries, headers, hakmem.pc, and the CMake package with the targets
# hakmem::hakmem and hakmem::static.
include(CMakePackageConfigHelpers)

set(hakmem_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)

install(TARGETS hakmem hakmem_static EXPORT hakmem-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT hakmem-targets NAMESPACE hakmem:: DESTINATION ${hakmem_package_dir})

configure_package_config_file(cmake/hakmem-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem-config.cmake
  INSTALL_DESTINATION ${hakmem_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem-config-version.cmake
  DESTINATION ${hakmem_package_dir})

# The .pc file finds its prefix from its own place, so that an installed tree may be moved.
file(RELATIVE_PATH hakmem_pc_to_prefix
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" hakmem_pc_to_prefix ${hakmem_pc_to_prefix})
configure_file(cmake/hakmem.pc.in ${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/hakmem.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
