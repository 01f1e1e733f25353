# HakmemLibrary: the two libraries, from one set of objects.
#
# hakmem_objects  every C file of the rooms of src/
# hakmem_new      operator new and delete: the one C++ file
# hakmem          libhakmem.so, in the root of the build directory
# hakmem_static   libhakmem.a, likewise

# The sources of one language become objects, and these one relocatable file. As a member of the
# archive that is linked whole or not at all, so that a program never gets malloc from here and free
# from elsewhere; operator new is a member of its own, so that a program may bring its own. They
# reach the linker as plain objects, which also keeps CMake from adding the C++ library for the sake
# of new.cpp: hakmem depends on libc alone.
set(hakmem_files)
function(hakmem_part target name)
  if(NOT ARGN)
    return()
  endif()
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE hakmem_library)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${file} $<TARGET_OBJECTS:${target}>
    DEPENDS ${target} $<TARGET_OBJECTS:${target}>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Joining ${name}.o")
  set_source_files_properties(${file} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(hakmem_files ${hakmem_files} ${file} PARENT_SCOPE)
endfunction()

set(hakmem_sources)
foreach(room IN ITEMS base os heap policy site learn observe guard api)
  file(GLOB room_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c)
  list(APPEND hakmem_sources ${room_sources})
endforeach()
file(GLOB hakmem_cxx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/*.cpp)
hakmem_part(hakmem_objects hakmem-core ${hakmem_sources})
hakmem_part(hakmem_new hakmem-new ${hakmem_cxx_sources})
# Both libraries use the files: one target makes them, so that a parallel build makes them once.
add_custom_target(hakmem_joined DEPENDS ${hakmem_files})

add_library(hakmem SHARED ${hakmem_files})
add_library(hakmem_static STATIC ${hakmem_files})
add_dependencies(hakmem hakmem_joined)
add_dependencies(hakmem_static hakmem_joined)
add_library(hakmem::hakmem ALIAS hakmem)
add_library(hakmem::static ALIAS hakmem_static)

set_target_properties(hakmem PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem EXPORT_NAME static)
foreach(target IN ITEMS hakmem hakmem_static)
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

# A program that allocates only inside the libraries it uses calls nothing of hakmem by name; the
# linker is told to take hakmem anyway.
if(HAKMEM_SANITIZE STREQUAL "")
  target_link_options(hakmem INTERFACE -Wl,--no-as-needed)
  target_link_options(hakmem_static INTERFACE -Wl,-u,malloc)
endif()

target_link_options(hakmem PRIVATE
  -Wl,-z,now -Wl,-z,relro
  -Wl,-z,nodelete)  # blocks outlive any dlclose
if(HAKMEM_SANITIZE STREQUAL "")
  target_link_options(hakmem PRIVATE -Wl,-z,defs)
else()
  target_link_options(hakmem PRIVATE -fsanitize=${HAKMEM_SANITIZE})
endif()
if(HAKMEM_COVERAGE)
  target_link_options(hakmem PRIVATE --coverage)
endif()
