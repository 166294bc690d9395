/* Opens the editor's plugin. */
#include "base/process/editor.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_editor_open(const struct ah_editor **out)
{
    const void *found = NULL;
    AH_TRY(ah_plugin_open("edit", "ah_edit_plugin", AH_EDITOR_ABI,
                          "line editing needs libedit (Debian: install libedit-dev, then build again)", &found));
    *out = found;
    return 0;
}
