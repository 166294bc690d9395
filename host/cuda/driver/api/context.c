/* The context of a thread's calls. */
#include "base/status/status.h"
#include "cuda/driver/api/device.h"

static _Thread_local CUcontext context_entered;

int ah_cuda_enter(struct ah_cuda_device *cuda)
{
    AH_TRY(ah_cuda_check_lost());
    return ah_cuda_make_current(cuda);
}

int ah_cuda_make_current(struct ah_cuda_device *cuda)
{
    if (context_entered == cuda->context)
        return 0;
    AH_TRY(ah_cuda_check(ah_cuda.context_set(cuda->context), "%s: its context", cuda->device->name));
    context_entered = cuda->context;
    return 0;
}

void ah_cuda_leave(void)
{
    ah_cuda.context_set(NULL);
    context_entered = NULL;
}

CUstreamCaptureMode ah_cuda_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ah_cuda.capture_mode(&mode);
    return mode;
}

void ah_cuda_tighten(CUstreamCaptureMode before)
{
    ah_cuda.capture_mode(&before);
}
