//! What clients and daemons send to the broker.

use super::{
    ClientAck, FeatureRequest, GetState, HelloFrame, JoinGroup, KeyRotationFrame, LeaveGroup,
    ListGrants, ListPeers, ListState, MessageStatusRequest, SendFrame, SessionHello, SetGrants,
    SetProfile, SetState, SetStats, SetStatus, SetSummary, SetVisible, TopicCreate, TopicHistory,
    TopicJoin, TopicLeave, TopicList, TopicMarkRead, TopicMembers, frames,
};

frames! {
    /// A frame from a client.
    ClientFrame, at most FRAME_BYTES_MAX {
        Hello(HelloFrame) => "hello",
        SessionHello(SessionHello) => "session_hello",
        FeatureRequest(FeatureRequest) => "feature_negotiation_request",
        KeyRotation(KeyRotationFrame) => "member_keypair_rotate",
        Send(SendFrame) => "send",
        ClientAck(ClientAck) => "client_ack",
        MessageStatus(MessageStatusRequest) => "message_status",
        ListPeers(ListPeers) => "list_peers",
        SetStatus(SetStatus) => "set_status",
        SetSummary(SetSummary) => "set_summary",
        SetVisible(SetVisible) => "set_visible",
        SetProfile(SetProfile) => "set_profile",
        SetStats(SetStats) => "set_stats",
        JoinGroup(JoinGroup) => "join_group",
        LeaveGroup(LeaveGroup) => "leave_group",
        TopicCreate(TopicCreate) => "topic_create",
        TopicList(TopicList) => "topic_list",
        TopicJoin(TopicJoin) => "topic_join",
        TopicLeave(TopicLeave) => "topic_leave",
        TopicMembers(TopicMembers) => "topic_members",
        TopicHistory(TopicHistory) => "topic_history",
        TopicMarkRead(TopicMarkRead) => "topic_mark_read",
        SetState(SetState) => "set_state",
        GetState(GetState) => "get_state",
        ListState(ListState) => "list_state",
        SetGrants(SetGrants) => "set_grants",
        ListGrants(ListGrants) => "list_grants",
    }
}

impl ClientFrame {
    /// Whether the frame may be the first of a connection. Any other gets the error `no_hello`.
    pub const fn is_hello(&self) -> bool {
        matches!(self, Self::Hello(_) | Self::SessionHello(_))
    }
}
