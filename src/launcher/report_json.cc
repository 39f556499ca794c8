#include "launcher/report.h"

#include <cstdlib>
#include <memory>
#include <new>

#include <cjson/cJSON.h>

namespace launcher {

namespace {

using json = std::unique_ptr<cJSON, decltype(&cJSON_Delete)>;

json own(cJSON *made)
{
    if (made == nullptr) {
        throw std::bad_alloc();
    }
    return {made, cJSON_Delete};
}

json to_value(const std::string &text)
{
    return own(cJSON_CreateString(to_printable(text).c_str()));
}

json text_or_null(const std::string &text)
{
    return text.empty() ? own(cJSON_CreateNull()) : to_value(text);
}

json to_value(bool value)
{
    return own(cJSON_CreateBool(value ? 1 : 0));
}

/* Exact up to 2^53, as in every reader of JSON. */
template <typename Number>
json to_value(const std::optional<Number> &number)
{
    return own(number.has_value()
                   ? cJSON_CreateNumber(static_cast<double>(*number))
                   : cJSON_CreateNull());
}

json object()
{
    return own(cJSON_CreateObject());
}

void add(json &to, const char *name, json value)
{
    if (cJSON_AddItemToObject(to.get(), name, value.get()) == 0) {
        throw std::bad_alloc();
    }
    (void)value.release(); /* it belongs to the object now */
}

/* convert  Makes a value of an element. */
template <typename List, typename Convert>
json to_array(const List &list, Convert &&convert)
{
    json array = own(cJSON_CreateArray());
    for (const auto &one : list) {
        json value = convert(one);
        if (cJSON_AddItemToArray(array.get(), value.get()) == 0) {
            throw std::bad_alloc();
        }
        (void)value.release();
    }
    return array;
}

json convert_holder(const gaudi::shim::holder &one)
{
    json value = object();
    add(value, "pid", to_value(std::optional(one.pid)));
    add(value, "user", to_value(std::optional(one.user)));
    add(value, "program", to_value(one.program));
    return value;
}

json convert_card(const card &one)
{
    json value = object();
    add(value, "index", to_value(one.index));
    add(value, "module_id", to_value(one.module_id));
    add(value, "bus_id", to_value(one.bus_id));
    add(value, "numa_node", to_value(one.numa_node));
    add(value, "memory", to_value(one.memory));
    add(value, "free_memory", to_value(one.free_memory));
    add(value, "state", to_value(std::string(to_string(one.state))));
    add(value, "kind", to_value(std::string(to_kind(one))));
    add(value, "held_by", to_array(one.held_by, convert_holder));
    return value;
}

json convert_ways(const std::vector<loading_way> &ways)
{
    json all = object();
    for (const loading_way &way : ways) {
        json value = object();
        add(value, "state", to_value(std::string(to_string(way.now))));
        add(value, "path", text_or_null(way.place.string()));
        add(all, way.name, std::move(value));
    }
    return all;
}

json convert_problem(const problem &one)
{
    json value = object();
    add(value, "missing", to_value(one.what));
    add(value, "to_mend", to_value(one.mend));
    return value;
}

} // namespace

std::string to_json(const report &found)
{
    json driver = object();
    add(driver, "setting", to_value(found.driver_setting));
    add(driver, "file", text_or_null(found.driver_file));

    json ucx = object();
    add(ucx, "version",
        text_or_null(found.ucx.release.has_value() ? found.ucx.version : ""));
    add(ucx, "libucp", text_or_null(found.ucx.libucp));

    json module = object();
    add(module, "path", text_or_null(found.module));
    add(module, "installed",
        to_array(found.installed, [](const ucx_release &one) {
            return to_value(to_string(one));
        }));

    json all = object();
    add(all, "usable", to_value(found.usable));
    add(all, "driver", std::move(driver));
    add(all, "cards", to_array(found.cards, convert_card));
    add(all, "ucx", std::move(ucx));
    add(all, "module", std::move(module));
    add(all, "loading", convert_ways(found.ways));
    add(all, "problems", to_array(found.missing, convert_problem));

    const std::unique_ptr<char, decltype(&std::free)> text(
        cJSON_Print(all.get()), std::free);
    if (text == nullptr) {
        throw std::bad_alloc();
    }
    return std::string(text.get()) + "\n";
}

} // namespace launcher
