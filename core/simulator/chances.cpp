#include "simulator/chances.hpp"

#include <algorithm>

namespace gpuyard {

namespace {

constexpr std::size_t kMostTables = 1024, kLongestJournal = 1 << 16;

}  // namespace

void Chances::begin_epoch() {
    ++epoch_;
    journal_.clear();
    std::fill(last_touch_.begin(), last_touch_.end(), std::uint64_t{0});
}

void Chances::forget() {
    begin_epoch();
    if (tables_.size() <= kMostTables) return;
    tables_.clear();
    number_.clear();
}

void Chances::touched(std::int32_t node, Time begin_us, Time end_us) {
    if (journal_.size() >= kLongestJournal) begin_epoch();
    journal_.push_back({node, begin_us, end_us});
    last_touch_[as_index(node)] = clock();
}

std::int32_t Chances::table_of(std::int32_t gpus, Time length_us) {
    const auto [at, made] = number_.try_emplace({gpus, length_us}, static_cast<std::int32_t>(tables_.size()));
    if (made) {
        Table& table = tables_.emplace_back();
        table.gpus = gpus;
        table.length_us = length_us;
    }
    return at->second;
}

Chances::Table& Chances::fresh(std::int32_t number) {
    Table& table = tables_[as_index(number)];
    if (table.epoch == epoch_) return table;
    table.epoch = epoch_;
    table.asked = table.built = false;
    table.seen = 0;
    table.suspect.clear();
    return table;
}

Profile::Chance Chances::best(std::int32_t number, Time not_before_us) {
    Table& table = fresh(number);
    if (table.asked) return best(number);
    // Most tables of a plan that is soon dropped are asked once.
    table.asked = true;
    return profile_.first_in(pool_, table.gpus, table.length_us, not_before_us);
}

const Profile::Chance& Chances::best(std::int32_t number) {
    Table& table = fresh(number);
    if (!table.built)
        build(table);
    else
        refresh(table);
    return table.winners[1];
}

void Chances::build(Table& table) {
    const std::size_t nodes = pool_.nodes.size();
    table.built = true;
    table.seen = journal_.size();
    table.winners.assign(2 * nodes, {});
    for (std::size_t i = 0; i < nodes; ++i)
        table.winners[nodes + i] =
            profile_.first_on_node(pool_.nodes[i], table.gpus, table.length_us, profile_.begin_us());
    for (std::size_t i = nodes; i-- > 1;)
        table.winners[i] =
            table.winners[2 * i + 1].before(table.winners[2 * i]) ? table.winners[2 * i + 1] : table.winners[2 * i];
}

void Chances::look_at(Table& table, std::size_t position) {
    std::size_t i = pool_.nodes.size() + position;
    table.winners[i] = profile_.first_on_node(pool_.nodes[position], table.gpus, table.length_us, profile_.begin_us());
    for (i /= 2; i >= 1; i /= 2)
        table.winners[i] =
            table.winners[2 * i + 1].before(table.winners[2 * i]) ? table.winners[2 * i + 1] : table.winners[2 * i];
}

void Chances::refresh(Table& table) {
    for (; table.seen < journal_.size(); ++table.seen)
        // What is touched again later is looked at then.
        if (last_touch_[as_index(journal_[table.seen].node)] == table.seen + 1)
            look_at(table, as_index(profile_.position(journal_[table.seen].node)));
    while (table.winners[1].begin_us < profile_.begin_us())
        look_at(table, as_index(profile_.position(table.winners[1].node)));
}

Profile::Chance Chances::best_without(std::int32_t number, std::int32_t node) {
    best(number);
    const Table& table = tables_[as_index(number)];
    Profile::Chance found;
    for (std::size_t i = pool_.nodes.size() + as_index(profile_.position(node)); i > 1; i /= 2)
        if (table.winners[i ^ 1].before(found)) found = table.winners[i ^ 1];
    return found;
}

bool Chances::suspects(std::int32_t number, std::uint64_t since, Time begin_us) {
    Table& table = fresh(number);
    const std::int32_t needed = table.gpus % pool_.size > 0 ? table.gpus % pool_.size : pool_.size;
    for (; table.seen < journal_.size(); ++table.seen) {
        const Touch& touch = journal_[table.seen];
        const Time from = profile_.first_over(touch.node, needed, table.length_us, touch.begin_us, touch.end_us);
        if (from == kEndless) continue;
        while (!table.suspect.empty() && table.suspect.back().second >= from) table.suspect.pop_back();
        table.suspect.emplace_back(table.seen + 1, from);
    }
    const auto first = std::upper_bound(table.suspect.begin(), table.suspect.end(), since,
                                        [](std::uint64_t time, const auto& s) { return time < s.first; });
    return first != table.suspect.end() && first->second <= begin_us;
}

}  // namespace gpuyard
