# HakmemFlags: how everything here is compiled.
#
# hakmem_common   warnings, language standard, instrumentation: library and tests
# hakmem_library  what the allocator's own code needs besides

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(hakmem_common INTERFACE)
target_compile_options(hakmem_common INTERFACE -Wall -Wextra -Wconversion)
if(HAKMEM_WERROR)
  target_compile_options(hakmem_common INTERFACE -Werror)
endif()
target_compile_definitions(hakmem_common INTERFACE _GNU_SOURCE)

# The compiler knows malloc and its kin and changes what it knows: a malloc followed by a memset
# becomes calloc, an allocation that nobody uses disappears. In an allocator the first is a function
# that calls itself; in a test of one, the second is a test of nothing.
foreach(name IN ITEMS malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign
                      valloc pvalloc malloc_usable_size)
  target_compile_options(hakmem_common INTERFACE -fno-builtin-${name})
endforeach()

if(NOT HAKMEM_SANITIZE STREQUAL "" AND HAKMEM_COVERAGE)
  message(FATAL_ERROR "HAKMEM_SANITIZE and HAKMEM_COVERAGE exclude each other.")
endif()
if(HAKMEM_SANITIZE MATCHES "^(address|undefined|thread)$")
  target_compile_options(hakmem_common INTERFACE
    -fsanitize=${HAKMEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(hakmem_common INTERFACE -fsanitize=${HAKMEM_SANITIZE})
  # A sanitizer has a malloc of its own: two of them in one process would free each other's blocks.
  target_compile_definitions(hakmem_common INTERFACE HAK_NO_INTERPOSE=1)
  set(hakmem_kind ${HAKMEM_SANITIZE})
elseif(NOT HAKMEM_SANITIZE STREQUAL "")
  message(FATAL_ERROR "HAKMEM_SANITIZE is \"${HAKMEM_SANITIZE}\"; it may be address, undefined or thread.")
elseif(HAKMEM_COVERAGE)
  # Atomic counters: the allocator is used by many threads at once.
  target_compile_options(hakmem_common INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(hakmem_common INTERFACE --coverage)
  set(hakmem_kind coverage)
else()
  string(TOLOWER "${CMAKE_BUILD_TYPE}" hakmem_kind)
endif()
if(NOT HAKMEM_SANITIZE STREQUAL "" OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(hakmem_common INTERFACE HAK_DEBUG=1)
endif()

add_library(hakmem_library INTERFACE)
target_link_libraries(hakmem_library INTERFACE hakmem_common)
target_include_directories(hakmem_library INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(hakmem_library INTERFACE
  -fPIC
  -fvisibility=hidden       # what is exported says so, and tests/conformance/exports.txt lists it
  -ftls-model=initial-exec  # a thread-local is one load; the general model may call malloc
  -fno-plt
  -fno-semantic-interposition
  $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)

string(TOLOWER "${CMAKE_C_COMPILER_ID}" hakmem_compiler)
if(hakmem_compiler STREQUAL "gnu")
  set(hakmem_compiler gcc)
endif()
target_compile_definitions(hakmem_library INTERFACE
  "HAK_BUILD_INFO=\"${hakmem_compiler} ${CMAKE_C_COMPILER_VERSION}, ${hakmem_kind}\"")
