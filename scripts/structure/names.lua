-- Check that the names in texts exist: functions that headers declare, and in comments functions, headers and files.
local files = require "files"

local names = {}

local function base(path) return path:match("[^/]*$") end

-- Does a comment's word for a file ("ops/dispatch/op.c", "gemm.h") name one? Parts of a path may be left out in front.
local function exists(word, paths)
  if paths.full[word] or paths.base[word] then return true end
  local tail = "/" .. word
  for path in pairs(paths.full) do
    if path:sub(-#tail) == tail or path:find(tail .. "/", 1, true) then return true end
  end
  return false
end

local function index(list)
  local paths, defined, known = {full = {}, base = {}}, {}, {}
  for _, file in ipairs(list) do
    paths.full[file.path], paths.base[base(file.path)] = true, true
    if file.path:find("%.[ch]u?$") or file.path:find("%.def$") then
      local code = files.c_code(file.text)
      for word in code:gmatch("%f[%w_][Aa][Hh]_[%w_]+") do known[word] = true end
      -- A definition may be made by a macro: its name is in a .c or .cu file all the same.
      if file.path:find("%.cu?$") or file.path:find("%.def$") then
        for word in code:gmatch("%f[%w_]ah_[%w_]+") do defined[word] = true end
      end
    end
  end
  return paths, defined, known
end

-- Words of a comment that end like a source file of ours; addresses and the user's own files (train.lua) are not.
local function named_files(comment)
  return comment:gmatch("%f[%w_./-]([%w_/-]+/[%w_-]+%.[chl][u]?[a]?)%f[^%w_]")
end

--- Report declarations without a definition and comments that name missing functions and types.
---@param list table[] from files.all
---@param report fun(path: string, line: integer, text: string)
function names.check(list, report)
  local paths, defined, known = index(list)
  for _, file in ipairs(list) do
    local path = file.path
    local header, c = path:find("^host/.*%.h$"), path:find("%.[ch]$") or path:find("%.def$")
    if header then
      for i, line in ipairs(file.lines) do
        local name = line:match("^[%a][%w_ *]*[ *](ah_[%w_]+)%(")
        if name and not line:find("^static") and not line:find("^typedef") and not defined[name] then
          report(path, i, name .. " is declared and defined nowhere")
        end
      end
    end
    if c or path:find("%.lua$") then
      for i, comment in ipairs(files.comments(file)) do
        for word in named_files(comment) do
          if not word:find("%u%u") and not exists(word, paths) then
            report(path, i, "a comment names " .. word .. ", which does not exist")
          end
        end
        for word, after in comment:gmatch("%f[%w_](ah_[%w_]+)(.?)") do
          local pattern = after == "*" or word:sub(-1) == "_" or word:find("[A-Z]")
          if c and not pattern and not known[word] then
            report(path, i, "a comment names " .. word .. ", which does not exist")
          end
        end
      end
    end
  end
end

return names
