--- Values that a notebook shows better than as text: tensors and rows as tables, images, modules with their parameters.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local image_grid = require "accelhost.util.image_grid"
local printable = require "accelhost.util.printable"
local show = require "accelhost.repl.show"

local rich = {}

local MOST_ROWS, MOST_COLUMNS, MOST_IMAGES = 60, 30, 64
local LEAST_SIDE, SHOWN_SIDE = 8, 112 -- pixels: of a tensor that is an image, of one that is shown as large as it is

local BOX = '<div style="overflow:auto;max-height:26em">%s</div>'

local function escape(value) return (printable.markup(value)) end

-- Text of several lines, as it is.
local function preformatted(value)
  local lines = {}
  for line in (value .. "\n"):gmatch "(.-)\n" do lines[#lines + 1] = escape(line) end
  return "<pre>" .. table.concat(lines, "\n") .. "</pre>"
end

-- A table of cells, which are HTML; `heads` is the row above. Front ends align cells to the right, as numbers are:
-- `is_text` has the columns of words.
local function html_table(heads, rows, is_text)
  local parts = {'<table class="dataframe">'}
  local function add(tag, row)
    parts[#parts + 1] = "<tr>"
    for i, cell in ipairs(row) do
      local style = is_text and is_text[i] and ' style="text-align:left"' or ""
      local name = i == 1 and "th" or tag
      parts[#parts + 1] = ("<%s%s>%s</%s>"):format(name, style, cell, name)
    end
    parts[#parts + 1] = "</tr>"
  end
  parts[#parts + 1] = "<thead>"
  add("th", heads)
  parts[#parts + 1] = "</thead><tbody>"
  for _, row in ipairs(rows) do add("td", row) end
  parts[#parts + 1] = "</tbody></table>"
  return table.concat(parts)
end

-- Tensors.

local function sizes_text(tensor) return "(" .. table.concat(tensor:shape(), ", ") .. ")" end

local function caption(tensor)
  return ("<div>tensor %s %s%s</div>"):format(escape(sizes_text(tensor)), tensor.dtype,
    tensor.device ~= "cpu" and " " .. escape(tostring(tensor.device)) or "")
end

local function number_text(value)
  if type(value) == "number" then return escape(printable.number(value, 5)) end
  return escape(tostring(value))
end

-- Indices from 0 of which some are shown; nil in the place of those between.
local function shown_indices(count, most)
  local list = {}
  for i = 0, count - 1 do
    if count <= most or i < most - 3 or i >= count - 2 then list[#list + 1] = i
    elseif i == most - 3 then list[#list + 1] = false end
  end
  return list
end

-- The elements at some rows and columns of a matrix, as a table of cells; without numbers of rows for a vector.
local function matrix_table(matrix, has_rows)
  local rows, heads = {}, {""}
  local columns = shown_indices(matrix:size(1), MOST_COLUMNS)
  for i, column in ipairs(columns) do heads[i + 1] = column and ("%d"):format(column) or "…" end
  for _, row in ipairs(shown_indices(matrix:size(0), MOST_ROWS)) do
    local cells = {not has_rows and "" or row and ("%d"):format(row) or "⋮"}
    local values = row and matrix:select(0, row):tolist()
    for i, column in ipairs(columns) do
      cells[i + 1] = not row and "" or column and number_text(values[column + 1]) or "…"
    end
    rows[#rows + 1] = cells
  end
  return html_table(heads, rows)
end

local function tensor_table(tensor)
  local dims = tensor:dim()
  if dims == 0 or tensor:numel() == 0 then return nil end
  local plain = tensor:detach():to "cpu"
  if dims > 2 then return BOX:format(preformatted(show(tensor, 100))) .. caption(tensor) end
  if dims == 1 then plain = plain:unsqueeze(0) end
  return BOX:format(matrix_table(plain, dims == 2)) .. caption(tensor)
end

-- A uint8 image [channels, rows, columns] of a tensor whose values are bytes, or numbers from 0 to 1.
local function to_bytes(tensor)
  local plain = tensor:detach():to "cpu"
  if plain.dtype == "bool" then plain = plain:to "float32" end
  if plain.dtype ~= "uint8" then plain = (plain:to "float32":clamp(0, 1) * 255):round():to "uint8" end
  return plain
end

-- Does the tensor have the shape of one image, or of several?
local function is_picture(tensor)
  local shape = tensor:shape()
  local n = #shape
  local channels = shape[n - 2]
  return (n == 3 or n == 4) and (channels == 1 or channels == 3 or channels == 4 and n == 3)
    and shape[n - 1] >= LEAST_SIDE and shape[n] >= LEAST_SIDE and (n == 3 or shape[1] > 0)
end

-- Return the picture of a tensor as PNG, and the size at which it is shown.
local function picture_of(tensor)
  local image = to_bytes(tensor)
  if image:dim() == 2 then image = image:unsqueeze(0) end
  if image:dim() == 4 then image = image_grid(image:narrow(0, 0, math.min(image:size(0), MOST_IMAGES)), 8, 2, 255) end
  local side = math.max(image:size(1), image:size(2))
  local scale = math.max(1, math.floor(SHOWN_SIDE / side))
  return C.data.encode_png(image:contiguous()), {width = image:size(2) * scale, height = image:size(1) * scale}
end

local function of_tensor(tensor, as)
  if as == "image" then
    local picture, size = picture_of(tensor)
    return {["image/png"] = picture}, {["image/png"] = size}
  end
  if as ~= "table" and tensor.dtype == "uint8" and is_picture(tensor) then
    local fine, picture, size = pcall(picture_of, tensor)
    if fine then return {["image/png"] = picture}, {["image/png"] = size} end
  end
  return {["text/html"] = tensor_table(tensor)}
end

-- Modules.

local function grouped(number)
  local text = ("%d"):format(number)
  return (text:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local function of_module(module)
  local rows, total, trained = {}, 0, 0
  for name, parameter in module:named_parameters() do
    total = total + parameter:numel()
    if parameter.requires_grad then trained = trained + parameter:numel() end
    rows[#rows + 1] = {escape(name), escape(sizes_text(parameter)), parameter.dtype, grouped(parameter:numel())}
  end
  local html = BOX:format(preformatted(show(module, 100)))
  if #rows > 0 then
    html = ("%s<details><summary>%s parameters%s</summary>%s</details>"):format(html, grouped(total),
      trained < total and (", %s of them trained"):format(grouped(trained)) or "",
      BOX:format(html_table({"name", "shape", "dtype", "elements"}, rows, {true, true, true})))
  end
  return {["text/html"] = html}
end

-- Rows.

local function cell_text(value)
  if type(value) == "string" then return escape(#value > 200 and value:sub(1, 200) .. " ..." or value) end
  if type(value) == "number" then return number_text(value) end
  if C.is_tensor(value) and value:numel() > 8 then return escape("tensor " .. sizes_text(value)) end
  return escape((show(value, 60):gsub("\n%s*", " ")))
end

-- A table of the first rows; row(i) is the i-th from 0 by column.
local function rows_table(names, count, row)
  local rows, heads, is_text = {}, {""}, {}
  for i, name in ipairs(names) do heads[i + 1] = escape(tostring(name)) end
  for i = 0, math.min(count, MOST_ROWS) - 1 do
    local cells, values = {("%d"):format(i)}, row(i)
    for k, name in ipairs(names) do
      local value = values[name]
      cells[k + 1] = value == nil and "" or cell_text(value)
      is_text[k + 1] = is_text[k + 1] or type(value) == "string"
    end
    rows[#rows + 1] = cells
  end
  return BOX:format(html_table(heads, rows, is_text))
end

local function of_set(set)
  local html = rows_table(set.column_names, set.num_rows, function(i) return set:get(i) end)
  return {["text/html"] = ("%s<div>%s rows, %d columns</div>"):format(html, grouped(set.num_rows), #set.column_names)}
end

-- A list of rows {loss = 0.1, ...}, with the columns of them all.
local function of_list(list)
  local names, seen = {}, {}
  for i = 1, math.min(#list, MOST_ROWS) do
    if type(list[i]) ~= "table" then return nil end
    for name in pairs(list[i]) do
      if not seen[name] then names[#names + 1] = name end
      seen[name] = true
    end
  end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return {["text/html"] = rows_table(names, #list, function(i) return list[i + 1] end)}
end

local function is_module(value)
  return class.of(value) and type(value.named_parameters) == "function" and type(value.forward) == "function"
end

local function is_set(value)
  return class.of(value) and type(value.column_names) == "table" and type(value.num_rows) == "number"
    and type(value.get) == "function"
end

--- Return the additional MIME types of a value, and their metadata.
---@param as? string "image" or "table", as for accelhost.display
---@return table
---@return table?
function rich.of(value, as)
  if C.is_tensor(value) then return of_tensor(value, as) end
  if type(value) ~= "table" and not class.of(value) then return {} end
  if is_module(value) then return of_module(value) end
  if is_set(value) then return of_set(value) end
  if as == "table" and not class.of(value) then return of_list(value) or {} end
  return {}
end

return rich
