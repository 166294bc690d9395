/* Settings as the text of a configuration file. */
#pragma once

#include "config/settings.h"

/* Format the settings that differ from their defaults: JSON when `path` ends with .json, else YAML. *out ends with a
 * NUL; the caller frees it. AH_ENOMEM. */
int ah_settings_format(const struct ah_settings *settings, const char *path, char **out);

/* Is this the name of a JSON file? */
bool ah_settings_is_json(const char *path);
