/* Ranks that nobody launched together: started by torchrun, by mpirun, by hand, they find each other on their host.
 *
 * Rank 0 makes the board and waits at an abstract socket, named by the user and by what tells jobs apart (MASTER_PORT,
 * a run's id); the others call there and are handed its descriptors. Nothing has a name in the file system, and nothing
 * is left. Nobody watches over such a job: its ranks see for themselves who has died (ah_board_lost). */
#ifndef AH_COMM_MEET_H
#define AH_COMM_MEET_H

#include "comm/board.h"
#include "comm/topology.h"

/* The board of this job, with this process as one of its ranks. Waits as long as a collective may (ACCELHOST_TIMEOUT)
 * for the others: rank 0 for all of them, the others for rank 0. Errors name the contradiction: another number of
 * ranks, a rank that is there twice, another host (AH_ENOTIMPL), who did not come (AH_ETIMEOUT). */
int ah_meet(struct ah_board **out, const struct ah_topology *who);

#endif
