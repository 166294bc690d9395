/* Settings as the text of a configuration file. */
#ifndef AH_CONFIG_WRITE_H
#define AH_CONFIG_WRITE_H

#include "config/settings.h"

/* What was told of the settings, not the defaults: JSON when `path` ends with .json, else YAML. *out is NUL-ended and
 * the caller's to free. AH_ENOMEM. */
int ah_settings_format(const struct ah_settings *settings, const char *path, char **out);

/* Is this the name of a JSON file? */
bool ah_settings_is_json(const char *path);

#endif
