/* Marks in the compute stream (tensor/device.h): an event each. */
#include <stdlib.h>

#include "cuda/driver/stream/mark.h"

struct ah_mark {
    struct ah_cuda_device *cuda;
    CUevent event;
    bool timed, set;
};

static int open_mark(struct ah_device *device, bool timed, struct ah_mark **out)
{
    struct ah_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        return ah_fail(AH_ENOMEM, "out of memory");
    *mark = (struct ah_mark){.cuda = ah_cuda_state(device), .timed = timed};
    int status = ah_cuda_enter(mark->cuda);
    if (status == 0)
        status = ah_cuda_check(ah_cuda.event_create(&mark->event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
                               "%s: an event", device->name);
    if (status < 0)
        free(mark);
    else
        *out = mark;
    return status;
}

static void close_mark(struct ah_mark *mark)
{
    if (ah_cuda_make_current(mark->cuda) == 0)
        ah_cuda.event_destroy(mark->event);
    free(mark);
}

static int set_mark(struct ah_mark *mark)
{
    AH_TRY(ah_cuda_enter(mark->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.event_record(mark->event, mark->cuda->compute), "%s: an event",
                         mark->cuda->device->name));
    mark->set = true;
    return 0;
}

static int is_reached(struct ah_mark *mark, bool *out)
{
    AH_TRY(ah_cuda_enter(mark->cuda));
    CUresult code = mark->set ? ah_cuda.event_query(mark->event) : CUDA_SUCCESS;
    *out = code == CUDA_SUCCESS;
    return code == CUDA_ERROR_NOT_READY ? 0 : ah_cuda_check(code, "%s", mark->cuda->device->name);
}

static int wait_for(struct ah_mark *mark)
{
    AH_TRY(ah_cuda_enter(mark->cuda));
    return mark->set ? ah_cuda_check(ah_cuda.event_synchronise(mark->event), "%s", mark->cuda->device->name) : 0;
}

static int event_measure(struct ah_mark *from, struct ah_mark *to, double *milliseconds)
{
    float passed = 0;
    if (from->cuda != to->cuda)
        return ah_fail(AH_EINVAL, "elapsed_time: one event is of %s, the other of %s", from->cuda->device->name,
                       to->cuda->device->name);
    if (!from->timed || !to->timed)
        return ah_fail(AH_EINVAL, "elapsed_time: both events have to be made with enable_timing = true");
    if (!from->set || !to->set)
        return ah_fail(AH_ESTATE, "elapsed_time: both events have to be recorded before");
    AH_TRY(ah_cuda_enter(from->cuda));
    CUresult code = ah_cuda.event_elapsed(&passed, from->event, to->event);
    if (code == CUDA_ERROR_NOT_READY)
        return ah_fail(AH_ESTATE, "elapsed_time: the device is not through with both events (synchronize waits)");
    *milliseconds = passed;
    return ah_cuda_check(code, "%s: the time between two events", from->cuda->device->name);
}

const struct ah_mark_functions ah_cuda_mark_functions = {
    .open = open_mark, .close = close_mark, .set = set_mark, .reached = is_reached, .wait = wait_for,
    .elapsed = event_measure,
};
