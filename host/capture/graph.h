/* Captured steps of the CPU (struct ah_graph_functions of tensor/device.h).
 *
 * During a capture the step runs as usual, and everything that it asks of the CPU is recorded: kernels, fills, copies,
 * passes of optimizers, states of the generator. So the call that captures has its results without a replay. A replay
 * repeats the records in C. Lua thread only. */
#pragma once

/* Give the CPU graphs; once, at start-up, after ah_cpu_open. */
void ah_capture_open(void);
