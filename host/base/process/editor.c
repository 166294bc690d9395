/* Opens the editor's plugin. */
#include "base/process/editor.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_editor_open(const struct ah_editor **out)
{
    void *symbol = NULL;
    int status = ah_plugin_open("edit", "ah_edit_plugin", &symbol);
    if (status < 0)
        return ah_fail_prefix(status, "line editing needs libedit (Debian: install libedit-dev, then build again)");
    const struct ah_editor *found = symbol;
    if (found->abi != AH_EDITOR_ABI)
        return ah_fail(AH_EINVAL, "accelhost-edit.so has interface %u, this program %d: build both again", found->abi,
                       AH_EDITOR_ABI);
    *out = found;
    return 0;
}
