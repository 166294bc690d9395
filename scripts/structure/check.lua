-- Check the structure of the source: no unexplained circle, long function, long file or repeated block, no declaration
-- without a definition, no comment that names a removed file, no registry name of two uses, no listed word, no
-- generated file without the name of its script. Prints FILE:LINE: finding; exit code 1 when there is one. Run from the
-- root: accelhost scripts/structure/check.lua
package.path = "scripts/structure/?.lua;" .. package.path
local files, reasons = require "files", require("reasons").read("scripts/structure/reasons.txt")

local breaches = {}
local function report(path, line, text) breaches[#breaches + 1] = ("%s:%d: %s"):format(path, line, text) end

local list = files.all()
for _, rule in ipairs {"circles", "sizes", "names", "duplicates", "registry", "words", "generated"} do
  require(rule).check(list, report, reasons)
end
reasons:check(report)

table.sort(breaches)
for _, breach in ipairs(breaches) do print(breach) end
if #breaches > 0 then
  io.stderr:write(("%d breaches of structure\n"):format(#breaches))
  os.exit(1)
end
