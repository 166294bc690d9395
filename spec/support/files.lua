--- Reading and writing of whole files for specs: a file that cannot be opened is an error.
local files = {}

--- The bytes of a file.
function files.read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read "*a"
  file:close()
  return bytes
end

--- The numbers of a file, one a line.
function files.numbers(path)
  local list = {}
  for line in io.lines(path) do list[#list + 1] = tonumber(line) end
  return list
end

--- Make a file, or truncate it; its path is returned.
function files.write(path, bytes)
  local file = assert(io.open(path, "wb"))
  assert(file:write(bytes))
  assert(file:close())
  return path
end

return files
