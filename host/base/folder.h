/* Folders of the file system. */
#ifndef AH_BASE_FOLDER_H
#define AH_BASE_FOLDER_H

/* Make a folder and those above it that are missing. AH_EINVAL for a name over 4095 bytes, AH_EIO; one that is there
 * is fine. */
int ah_folder_make(const char *path);

#endif
