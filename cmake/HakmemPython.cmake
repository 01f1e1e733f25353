# HakmemPython: what `pip install .` puts beside the Python files, in hakmem/_native/: the library, the
# workloads, the witness, and the script that builds the peers.
set(hakmem_native hakmem/_native)

install(FILES $<TARGET_FILE:hakmem> DESTINATION ${hakmem_native} RENAME libhakmem.so)
install(FILES $<TARGET_FILE:hakmem_static> DESTINATION ${hakmem_native})
install(TARGETS hakwitness LIBRARY DESTINATION ${hakmem_native} NAMELINK_SKIP)
install(TARGETS hakbench RUNTIME DESTINATION ${hakmem_native})
install(PROGRAMS bench/peers/build.sh DESTINATION ${hakmem_native}/peers)
install(FILES bench/peers/pins.txt bench/peers/probe.c bench/peers/Cargo.toml bench/peers/nothing.rs
  DESTINATION ${hakmem_native}/peers)
install(DIRECTORY bench/workloads/rust DESTINATION ${hakmem_native}
  PATTERN target EXCLUDE)
