// For tests of faults.

// Launched with more shared memory than any device has, so that the launch is refused. Writes nothing.
KERNEL void fault(Element*) {}

// Faults the GPU: no process can use it any more without being started again.
KERNEL void trap(Element*) { __trap(); }
