/* Events in the compute stream (tensor/device.h). */
#include <stdlib.h>

#include "base/status/status.h"

#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/event.h"

struct ah_device_event {
    struct ah_cuda_device *cuda;
    CUevent handle;
    bool timed, set;
};

static int open_event(struct ah_device *device, bool timed, struct ah_device_event **out)
{
    struct ah_device_event *event = calloc(1, sizeof *event);
    AH_TRY_MEMORY(event, "out of memory");
    *event = (struct ah_device_event){.cuda = ah_cuda_state(device), .timed = timed};
    int status = ah_cuda_enter(event->cuda);
    if (status == 0)
        status = ah_cuda_check(ah_cuda.event_create(&event->handle, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
                               "%s: an event", device->name);
    if (status < 0)
        free(event);
    else
        *out = event;
    return status;
}

static void close_event(struct ah_device_event *event)
{
    if (ah_cuda_make_current(event->cuda) == 0)
        ah_cuda.event_destroy(event->handle);
    free(event);
}

/* An event that is recorded within a capture is a place in the graph: the host could never query it. */
static int refuse_event(const struct ah_device_event *event, const char *what)
{
    return ah_cuda_capture_refuse(event->cuda, what, "do it outside of the step");
}

static int set_event(struct ah_device_event *event)
{
    AH_TRY(refuse_event(event, "recording an event"));
    AH_TRY(ah_cuda_enter(event->cuda));
    AH_TRY(ah_cuda_check(ah_cuda.event_record(event->handle, event->cuda->compute), "%s: an event",
                         event->cuda->device->name));
    event->set = true;
    return 0;
}

static int is_reached(struct ah_device_event *event, bool *out)
{
    AH_TRY(refuse_event(event, "querying an event"));
    AH_TRY(ah_cuda_enter(event->cuda));
    CUresult code = event->set ? ah_cuda.event_query(event->handle) : CUDA_SUCCESS;
    *out = code == CUDA_SUCCESS;
    return code == CUDA_ERROR_NOT_READY ? 0 : ah_cuda_check(code, "%s", event->cuda->device->name);
}

static int wait_for(struct ah_device_event *event)
{
    AH_TRY(refuse_event(event, "waiting for an event"));
    AH_TRY(ah_cuda_enter(event->cuda));
    return event->set ? ah_cuda_check(ah_cuda.event_synchronise(event->handle), "%s", event->cuda->device->name) : 0;
}

static int event_measure(struct ah_device_event *from, struct ah_device_event *to, double *milliseconds)
{
    float passed = 0;
    AH_TRY(refuse_event(from, "querying an event"));
    if (from->cuda != to->cuda)
        return ah_fail(AH_EINVAL, "elapsed_time: one event is of %s, the other of %s", from->cuda->device->name,
                       to->cuda->device->name);
    if (!from->timed || !to->timed)
        return ah_fail(AH_EINVAL, "elapsed_time: both events have to be made with enable_timing = true");
    if (!from->set || !to->set)
        return ah_fail(AH_ESTATE, "elapsed_time: both events have to be recorded before");
    AH_TRY(ah_cuda_enter(from->cuda));
    CUresult code = ah_cuda.event_elapsed(&passed, from->handle, to->handle);
    if (code == CUDA_ERROR_NOT_READY)
        return ah_fail(AH_ESTATE, "elapsed_time: the device is not through with both events (synchronize waits)");
    *milliseconds = passed;
    return ah_cuda_check(code, "%s: the time between two events", from->cuda->device->name);
}

const struct ah_device_event_functions ah_cuda_event_functions = {
    .open = open_event, .close = close_event, .set = set_event, .reached = is_reached, .wait = wait_for,
    .elapsed = event_measure,
};
