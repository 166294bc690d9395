/* The default hooks, for devices on which no communicator was opened. */
#include "cuda/driver/api/collectives.h"

static int none_check(struct ah_cuda_device *cuda)
{
    (void)cuda;
    return 0;
}

static int none_end_capture(struct ah_cuda_device *cuda, struct ah_cuda_graph_comms *comms)
{
    (void)cuda;
    comms->count = 0;
    return 0;
}

static int none_replay(struct ah_cuda_device *cuda, const struct ah_cuda_graph_comms *comms)
{
    (void)cuda, (void)comms;
    return 0;
}

static const struct ah_cuda_collectives no_collectives = {none_check, none_end_capture, none_replay, none_replay};

const struct ah_cuda_collectives *ah_cuda_collectives = &no_collectives;
