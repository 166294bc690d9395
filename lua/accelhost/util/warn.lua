--- Warnings: one line on stderr, once per text and process.
local seen = {}

--- Say `text` on stderr unless it was said before.
---@param text string
return function(text)
  if seen[text] then return end
  seen[text] = true
  io.stdout:flush()
  io.stderr:write("warning: ", text, "\n")
end
