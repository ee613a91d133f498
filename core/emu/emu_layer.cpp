/* emu_layer.cpp - The parts of the emulator's layer as one translation unit. */
#include "emu_access.cpp"
#include "emu_blocks.cpp"
#include "emu_checks.cpp"
#include "emu_far.cpp"
#include "emu_found.cpp"
#include "emu_host.cpp"
#include "emu_memory.cpp"
#include "emu_threads.cpp"
