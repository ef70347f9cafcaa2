// A longer queue of connections.
//
// The one idea: XRootD asks the kernel to keep 255 connections that wait to be taken, and has no word for more; 1,350
// clients that come at once overflow that. listen(2) on a socket that listens already only changes the number.

#pragma once

namespace thumper {

// Soon after the start, and some times again, gives each port of this process a queue of `backlog`.
void widen_queues(int backlog);

}  // namespace thumper
