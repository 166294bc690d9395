/* Lines typed at a terminal, with editing, history and completion. The editor (libedit) is the plugin
 * accelhost-edit.so, which exports its `struct ah_editor` as `ah_edit_plugin` and is opened by a prompt. Used by one
 * thread, for one prompt per process. */
#pragma once

enum { AH_EDITOR_ABI = 1 };

/* The ends of reading a line. */
enum ah_editor_end { AH_EDITOR_LINE, AH_EDITOR_END, AH_EDITOR_INTERRUPT };

/* The result of the Tab key: text to insert at the cursor, and choices to show below; either may be NULL. The editor
 * frees both. */
struct ah_completion {
    char *insert, *list;
};

struct ah_editor {
    unsigned abi; /* AH_EDITOR_ABI of the headers that the plugin was built with */
    /* Start the editor. `history`: a file that is read now and to which `remember` appends; NULL: none. A file that
     * cannot be opened is no error. `complete` receives the text from the beginning of the input to the cursor.
     * AH_ENOMEM. */
    int (*open)(const char *history, void (*complete)(void *context, const char *before, struct ah_completion *out),
                void *context);
    /* Read the typed text up to Enter; pasted text is included with its line ends. The caller frees `*line`. Text of
     * the prompt between two bytes \1 has no width (escape sequences). A signal that ends programs is raised again
     * after the terminal's settings have been restored. */
    enum ah_editor_end (*read)(char **line, const char *prompt);
    /* Add an entry of one or more lines to the history, for the Up key. */
    void (*remember)(const char *text);
};

/* Return the editor; AH_EINVAL where its plugin is not installed. */
int ah_editor_open(const struct ah_editor **out);
