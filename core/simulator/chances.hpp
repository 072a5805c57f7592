// Where jobs could begin in a profile, remembered from search to search, and which reservations a change of the profile
// may move: by these a plan of `conservative` is brought up to date without searching for every job again.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "simulator/profile.hpp"

namespace gpuyard {

// For clusters of one pool. Everything here is as of the last `forget`, and of what was `touched` since.
class Chances {
public:
    Chances(const Profile& profile, const Pool& pool)
        : profile_(profile),
          pool_(pool),
          last_touch_(profile.node_count(), 0) {}

    // To be called when the profile is another one.
    void forget();
    // To be called after a node has changed between two times.
    void touched(std::int32_t node, Time begin_us, Time end_us);

    std::uint64_t epoch() const { return epoch_; }
    std::uint64_t clock() const { return journal_.size(); }  // ticks with every touch
    std::uint64_t last_touch(std::int32_t node) const { return last_touch_[as_index(node)]; }

    // The table of jobs that take so much for so long; its number is good until `forget`.
    std::int32_t table_of(std::int32_t gpus, Time length_us);
    // Of jobs that sit on one node: the best chance of one more, which is not before `not_before_us`.
    Profile::Chance best(std::int32_t table, Time not_before_us);
    // The same, now that the table is known to be asked for again.
    const Profile::Chance& best(std::int32_t table);
    Profile::Chance best_without(std::int32_t table, std::int32_t node);
    // Of jobs on several nodes: whether one that begins then might move by what was touched since.
    bool suspects(std::int32_t table, std::uint64_t since, Time begin_us);

private:
    struct Touch {
        std::int32_t node;
        Time begin_us, end_us;
    };
    struct Table {
        std::int32_t gpus;
        Time length_us;
        std::uint64_t epoch = 0;
        bool asked = false, built = false;     // in this epoch
        std::size_t seen = 0;                  // of the journal
        std::vector<Profile::Chance> winners;  // a tree: the better of 2i and 2i + 1 is at i, nodes are at the end
        std::vector<std::pair<std::uint64_t, Time>> suspect;  // when, and from what begin on; both ascend
    };

    void begin_epoch();
    Table& fresh(std::int32_t table);
    void build(Table& table);
    void refresh(Table& table);
    void look_at(Table& table, std::size_t position);

    const Profile& profile_;
    const Pool& pool_;
    std::uint64_t epoch_ = 1;
    std::vector<Touch> journal_;
    std::vector<std::uint64_t> last_touch_;  // by node, by the clock
    std::map<std::pair<std::int32_t, Time>, std::int32_t> number_;
    std::vector<Table> tables_;
};

}  // namespace gpuyard
